"""Stored attention maps of a run: maps.safetensors, (batch, head, query, key) in float16, and maps.json beside it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from headlab.base.display import Displayed
from headlab.base.errors import DataError
from headlab.base.json_text import to_json
from headlab.runs.files import write_atomically

FILES = ("maps.json", "maps.safetensors")
_SPECIAL = re.compile(r"^(\[[A-Z_0-9]+\]|</?(s|unk|pad|bos|eos|mask|sep|cls)>|<\|[^|]*\|>|<extra_id_\d+>)$")


@dataclass(frozen=True)
class Places:
    """Where tokens are in the text that they come from: one entry for each token, None for those that are not in it.

    `offsets` are (start, end) in characters, None where the tokenizer gives none; `words` are the places of the
    tokens' words in the text, None where those are not known.
    """

    text: str
    offsets: Sequence[tuple[int, int] | None] | None = None
    words: Sequence[int | None] | None = None


@dataclass(frozen=True)
class AttentionMap(Displayed):
    """What one head did with one text: `weights` is (query, key); tokens as the tokenizer names them."""

    kind: str
    layer: int
    head: int
    text: int  # id of the text, the same for all maps of it
    weights: np.ndarray
    query_tokens: Sequence[str]
    key_tokens: Sequence[str]
    query_special: Sequence[bool] | None = None  # which tokens the tokenizer added; None = told by their look
    key_special: Sequence[bool] | None = None
    query_places: Places | None = None
    key_places: Places | None = None

    def __post_init__(self) -> None:
        tokens = (len(self.query_tokens), len(self.key_tokens))
        if self.weights.shape != tokens:
            raise DataError(
                f"A map of shape {self.weights.shape} does not fit (query, key) tokens {tokens}.",
                "Cut padding off both sides.",
            )
        for flags, count in zip((self.query_special, self.key_special), tokens, strict=True):
            if flags is not None and len(flags) != count:
                raise DataError(
                    f"{len(flags)} flags of special tokens do not fit {count} tokens.",
                    "Give one flag for each token, or none.",
                )


class Maps(list[AttentionMap], Displayed):
    """Attention maps that a notebook shows in one viewer."""


def is_special(tokens: Iterable[str]) -> list[bool]:
    """Which tokens look like those that tokenizers add ([CLS], </s>, <|endoftext|>), for maps without flags."""
    return [bool(_SPECIAL.match(str(token))) for token in tokens]


def save_maps(folder: str | Path, maps: Iterable[AttentionMap]) -> list[Path]:
    """Write maps into a run folder, both files atomically; returns their paths.

    Maps of one text and layer that follow each other share a tensor (1, head, query, key), as bertviz takes it.
    maps.json names its heads, and for each side the tokens, which are special, their offsets and words in the text.
    """
    tensors: dict[str, np.ndarray] = {}
    entries: list[dict[str, Any]] = []
    sides: dict[str, int] = {}  # the JSON of a side -> its place; texts are named once, however many layers see them
    for _, group in itertools.groupby(maps, key=lambda m: (m.text, m.kind, m.layer, m.weights.shape)):
        for together in _without_doubles(list(group)):
            first = together[0]
            name = f"text{first.text}.{first.kind}.{first.layer}"
            name += f".{len(entries)}" if name in tensors else ""
            tensors[name] = np.stack([np.asarray(m.weights, dtype=np.float16) for m in together])[None]
            queries, keys = (sides.setdefault(side, len(sides)) for side in map(to_json, _sides(first)))
            entries.append(
                {
                    "tensor": name,
                    "kind": first.kind,
                    "layer": first.layer,
                    "text": first.text,
                    "heads": [m.head for m in together],
                    "queries": queries,
                    "keys": keys,
                }
            )
    listing = {"schema": 2, "axes": ["batch", "head", "query", "key"], "sides": [json.loads(s) for s in sides]}
    folder = Path(folder)
    return [
        write_atomically(folder / "maps.safetensors", save(tensors)),
        write_atomically(folder / "maps.json", to_json(listing | {"maps": entries})),
    ]


def _without_doubles(maps: list[AttentionMap]) -> list[list[AttentionMap]]:
    """Maps that can share one tensor: the same tokens on both sides, and each head once."""
    found: list[list[AttentionMap]] = []
    for item in maps:
        fits = found and _sides(found[-1][0]) == _sides(item) and all(m.head != item.head for m in found[-1])
        found[-1].append(item) if fits else found.append([item])
    return found


def _sides(item: AttentionMap) -> tuple[dict[str, Any], dict[str, Any]]:
    """Queries and keys as JSON has them; `special` are positions, where they are known."""
    return (
        _side(item.query_tokens, item.query_special, item.query_places),
        _side(item.key_tokens, item.key_special, item.key_places),
    )


def _side(tokens: Sequence[str], special: Sequence[bool] | None, places: Places | None) -> dict[str, Any]:
    found: dict[str, Any] = {"tokens": list(tokens)}
    if special is not None:
        found["special"] = [i for i, flag in enumerate(special) if flag]
    if places is not None:
        offsets = None if places.offsets is None else [o and list(o) for o in places.offsets]
        words = None if places.words is None else list(places.words)
        found |= {"text": places.text, "offsets": offsets, "words": words}
    return found


def load_maps(folder: str | Path) -> Maps:
    """The maps of a run, in the order they were stored, or none; raises DataError for damaged files."""
    listing, weights = (Path(folder) / name for name in FILES)
    if not listing.is_file() or not weights.is_file():
        return Maps()
    try:
        found = json.loads(listing.read_text(encoding="utf-8"))
        tensors = load_file(weights)
        read = _read if found["schema"] > 1 else _read_first_schema
        stored = [(entry, tensors[entry["tensor"]]) for entry in found["maps"]]
        return Maps(item for entry, tensor in stored for item in read(entry, tensor, found.get("sides")))
    except (OSError, ValueError, KeyError, IndexError, TypeError, SafetensorError) as error:
        raise DataError(
            f"The maps in {folder} cannot be read: {error}", "Write them again, or take maps.* away."
        ) from error


def _read(entry: dict, weights: np.ndarray, sides: list[dict]) -> list[AttentionMap]:
    queries, keys = sides[entry["queries"]], sides[entry["keys"]]
    rest = (queries["tokens"], keys["tokens"], _flags(queries), _flags(keys), _places(queries), _places(keys))
    return [
        AttentionMap(entry["kind"], entry["layer"], head, entry["text"], matrix.astype(np.float32), *rest)
        for head, matrix in zip(entry["heads"], weights[0], strict=True)
    ]


def _flags(side: dict) -> list[bool] | None:
    special = side.get("special")
    return None if special is None else [i in set(special) for i in range(len(side["tokens"]))]


def _places(side: dict) -> Places | None:
    if "text" not in side:
        return None
    offsets = side["offsets"]
    return Places(side["text"], None if offsets is None else [o and (o[0], o[1]) for o in offsets], side["words"])


def _read_first_schema(entry: dict, weights: np.ndarray, _: Any) -> list[AttentionMap]:
    """A map as runs of before stored it: a tensor (query, key) for each head, with the tokens at every map."""
    sides = [{"tokens": entry[f"{side}_tokens"], "special": entry.get(f"{side}_special")} for side in ("query", "key")]
    return [
        AttentionMap(
            entry["kind"],
            int(entry["layer"]),
            int(entry["head"]),
            int(entry["text"]),
            weights.astype(np.float32),
            sides[0]["tokens"],
            sides[1]["tokens"],
            _flags(sides[0]),
            _flags(sides[1]),
        )
    ]
