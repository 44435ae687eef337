"""Which heads are kept: names of heads, and a mask over all heads of a model (1 = kept, 0 = removed)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from headlab.base.display import Displayed
from headlab.base.errors import UsageError

KINDS = ("encoder", "decoder", "cross")
ABLATIONS = ("zero", "mean", "resample", "uniform")  # what may take the place of a removed head
LayerKey = tuple[str, int]  # (kind, layer): names one attention layer
_LETTER = {"encoder": "E", "decoder": "D", "cross": "X"}
_KIND = {letter: kind for kind, letter in _LETTER.items()}
_NAME = re.compile(r"^\s*([LEDX])(\d+)H(\d+)\s*$", re.IGNORECASE)
_MICHEL = re.compile(r"^\s*([EDA]):(\d+):(\d+(?:,\d+)*)\s*$")  # A = attention from decoder to encoder


class HeadId(NamedTuple):
    """One attention head; layer and head count from 0."""

    kind: str
    layer: int
    head: int


class HasHeads(Protocol):
    """Anything that knows its heads: `heads_per_layer` maps (kind, layer) to a number of heads."""

    @property
    def heads_per_layer(self) -> Mapping[tuple[str, int], int]: ...


def head_name(head: HeadId | Sequence, *, single_stack: bool) -> str:
    """`L3H5` in a model with one stack; `E3H5`, `D3H5`, `X3H5` for encoder, decoder and cross-attention."""
    kind, layer, index = head
    return f"{'L' if single_stack else _LETTER.get(kind, kind)}{layer}H{index}"


def head_names(index: Iterable[tuple[str, int, int]], *, single_stack: bool | None = None) -> list[str]:
    """Names of heads: `L3H5` where all are of one kind (or `single_stack` says so), else `E3H5`, `D3H5`, `X3H5`.

    Cross-attention is never all that a model has, so that a table of it alone has names with X.
    """
    heads = list(index)
    if single_stack is None:
        kinds = {kind for kind, _, _ in heads}
        single_stack = len(kinds) <= 1 and kinds != {"cross"}
    return [head_name(head, single_stack=single_stack) for head in heads]


def parse_heads(text: str | Mapping[int, Iterable[int]], like: HasHeads) -> list[HeadId]:
    """Read heads from `L3H5,L4H0`, from Michel's 1-based `E:4:6` (A = cross), or from a `{layer: [heads]}` dict.

    Raises UsageError for text that names no head and for heads that the model does not have.
    """
    sizes = like.heads_per_layer
    kinds = {kind for kind, _ in sizes}
    only = next(iter(kinds)) if len(kinds) == 1 else None
    if isinstance(text, Mapping):
        if only is None:
            raise UsageError(
                "A {layer: [heads]} dict is ambiguous in a model with several kinds of attention.",
                "Name the heads as text: E3H5, D3H5 or X3H5.",
            )
        found = _from_dict(text, only)
    else:
        found = [head for part in _split(text) for head in _parse_one(part, only)]
    for head in found:
        if not 0 <= head.head < sizes.get((head.kind, head.layer), 0):
            name = head_name(head, single_stack=only == head.kind)
            raise UsageError(f"The model has no head {name}.", _extent(sizes))
    return found


def _from_dict(heads: Mapping[int, Iterable[int]], kind: str) -> list[HeadId]:
    try:
        return [HeadId(kind, int(layer), int(head)) for layer, row in heads.items() for head in row]
    except (TypeError, ValueError):
        raise UsageError(
            f"{dict(heads)!r} does not name heads.", "Write {layer: [head, head]}, counted from 0."
        ) from None


def _one_or_more(head: Sequence, like: HasHeads) -> list[HeadId]:
    """A head given as (kind, layer, head) or by name."""
    if isinstance(head, str):
        return parse_heads(head, like)
    try:
        kind, layer, index = head
        return [HeadId(str(kind), int(layer), int(index))]
    except (TypeError, ValueError):
        raise UsageError(f"{head!r} does not name a head.", "Write 'L3H5' or (kind, layer, head).") from None


def _split(text: str) -> list[str]:
    """Parts between commas or blanks; the commas inside Michel's `E:4:6,7` stay."""
    return [part for part in re.split(r"[\s;]+|,(?=\s*[A-Za-z])", text) if part]


def _parse_one(part: str, only: str | None) -> list[HeadId]:
    if match := _NAME.match(part):
        letter, layer, head = match.group(1).upper(), int(match.group(2)), int(match.group(3))
        if letter == "L" and only is None:
            raise UsageError(
                f"Head {part!r} does not say which stack it is in.",
                "Write E3H5, D3H5 or X3H5 for encoder, decoder or cross-attention.",
            )
        return [HeadId(only if letter == "L" and only else _KIND[letter], layer, head)]
    if match := _MICHEL.match(part):
        kind = {"E": "encoder", "D": "decoder", "A": "cross"}[match.group(1)]
        layer, heads = int(match.group(2)), [int(h) for h in match.group(3).split(",")]
        if layer < 1 or min(heads) < 1:
            raise UsageError(f"Head {part!r} counts from 0.", "This notation counts layers and heads from 1.")
        return [HeadId(kind, layer - 1, head - 1) for head in heads]
    raise UsageError(
        f"{part!r} does not name a head.", "Write L3H5 (layer 3, head 5, counted from 0), or E3H5, D3H5, X3H5."
    )


def _extent(sizes: Mapping[tuple[str, int], int]) -> str:
    parts = []
    for kind in KINDS:
        layers = sorted(layer for k, layer in sizes if k == kind)
        if layers:
            counts = sorted({sizes[kind, layer] for layer in layers})
            heads = f"0 to {counts[0] - 1}" if len(counts) == 1 else f"up to {counts[-1] - 1}, by layer"
            parts.append(f"{kind}: layers {layers[0]} to {layers[-1]}, heads {heads}")
    return f"It has {'; '.join(parts)}."


class HeadMask(Displayed):
    """Which heads of a model are kept, as one boolean array per (kind, layer): True = kept, False = removed."""

    def __init__(self, keep: Mapping[tuple[str, int], Sequence[bool] | np.ndarray]) -> None:
        self._keep = {key: np.array(row, dtype=bool) for key, row in sorted(keep.items())}
        for row in self._keep.values():
            row.setflags(write=False)

    @classmethod
    def full(cls, like: HasHeads) -> HeadMask:
        """Every head kept."""
        return cls({key: np.ones(size, dtype=bool) for key, size in like.heads_per_layer.items()})

    @classmethod
    def removing(cls, heads: str | Mapping[int, Iterable[int]] | Iterable[Sequence], *, like: HasHeads) -> HeadMask:
        """Every head kept but these; raises UsageError for a head that the model does not have.

        `heads` is text (`"L3H5,L4H0"`), a {layer: [heads]} dict, or a list of names or of (kind, layer, head).
        """
        if not isinstance(heads, Iterable):
            raise UsageError(f"Heads cannot be read from {type(heads).__name__}.", "Write L3H5,L4H0, or give a list.")
        if isinstance(heads, (str, Mapping)):
            gone = parse_heads(heads, like)
        else:
            gone = [one for head in heads for one in _one_or_more(head, like)]
        keep = {key: np.ones(size, dtype=bool) for key, size in like.heads_per_layer.items()}
        for head in gone:
            if head.head < 0 or head.head >= like.heads_per_layer.get((head.kind, head.layer), 0):
                # E0H1 of a decoder is not the L0H1 that it has.
                name = head_name(head, single_stack={kind for kind, _ in keep} == {head.kind})
                raise UsageError(f"The model has no head {name}.", _extent(like.heads_per_layer))
            keep[head.kind, head.layer][head.head] = False
        return cls(keep)

    @property
    def heads_per_layer(self) -> dict[tuple[str, int], int]:
        """Number of heads by (kind, layer), removed ones included."""
        return {key: len(row) for key, row in self._keep.items()}

    def __getitem__(self, key: tuple[str, int]) -> np.ndarray:
        return self._keep[key]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._keep)

    def __len__(self) -> int:
        return sum(len(row) for row in self._keep.values())

    @property
    def removed(self) -> list[HeadId]:
        """The removed heads, by kind, layer and head."""
        return [HeadId(*key, int(h)) for key, row in self._keep.items() for h in np.flatnonzero(~row)]

    @property
    def kept(self) -> list[HeadId]:
        """The kept heads, by kind, layer and head."""
        return [HeadId(*key, int(h)) for key, row in self._keep.items() for h in np.flatnonzero(row)]

    def __and__(self, other: HeadMask) -> HeadMask:
        if self.heads_per_layer != other.heads_per_layer:
            raise UsageError("The masks belong to different models.", "Combine masks of one model only.")
        return HeadMask({key: row & other[key] for key, row in self._keep.items()})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadMask):
            return NotImplemented
        return self.heads_per_layer == other.heads_per_layer and self.removed == other.removed

    def __hash__(self) -> int:
        return hash((tuple(self.heads_per_layer.items()), tuple(self.removed)))

    def to_text(self) -> str:
        """The removed heads as text, `L3H5,L4H0`; empty where every head is kept."""
        single = len({kind for kind, _ in self._keep}) == 1
        return ",".join(head_name(head, single_stack=single) for head in self.removed)

    def __repr__(self) -> str:
        gone = self.removed
        shown = self.to_text() if len(gone) <= 12 else f"{len(gone)} heads"
        return f"HeadMask({len(self)} heads, removed: {shown or 'none'})"
