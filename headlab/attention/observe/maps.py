"""Attention maps of a few texts with their tokens: what `headlab dump --maps` stores and a notebook shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from headlab.base.errors import UsageError
from headlab.base.masks import HeadId
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.places import TokenPlaces
from headlab.runs.maps import AttentionMap, Maps, Places

if TYPE_CHECKING:
    from headlab.attention.heads import Heads

MAX_BYTES = 4 << 30
PlacesOf = Callable[[int], TokenPlaces]  # example id -> where its tokens are in their text


def attention_maps(
    heads: Heads, batches: Sequence[Batch], n: int | None = None, layers: Sequence[int] | None = None,
    chosen: Sequence[HeadId] | None = None, places_of: PlacesOf | None = None,
) -> Maps:  # fmt: skip
    """Maps of the first n texts (all without n) by example id, padding cut off, heads in the order of the head table.

    `places_of` tells where the tokens are in their text, where that is known.
    Raises UsageError for heads and layers that do not exist, and for more than 4 GiB of maps.
    """
    rows = sorted((example, b, r) for b, batch in enumerate(batches) for r, example in enumerate(batch.examples))[:n]
    singles = [_row(batches[b], r) for _, b, r in rows]
    kept = _kept(heads, layers, chosen)
    if chosen is not None and layers is not None and not kept:
        raise UsageError("None of the heads of --heads is in the layers of --layers.", "Leave out one of the two.")
    _check_size(singles, sum(len(found) for found in kept.values()))
    places = [places_of(example) if places_of else None for example, _, _ in rows]
    return Maps(
        one
        for text, (single, where) in enumerate(zip(singles, places, strict=True))
        for one in _of_text(heads, single, text, layers, chosen, kept, where)
    )


def _of_text(
    heads: Heads, single: Batch, text: int, layers: Sequence[int] | None, chosen: Sequence[HeadId] | None,
    kept: dict[tuple[str, int], list[int]], places: TokenPlaces | None,
) -> Iterator[AttentionMap]:  # fmt: skip
    tokenizer = heads.checkpoint.tokenizer if heads.checkpoint else None
    for (kind, layer), found in heads.capture(single, layers, chosen).items():  # found: (1, head, query, key)
        queries, keys = _sides(kind, single)
        real = found[0].cpu()[:, queries.valid[0].cpu()][:, :, keys.valid[0].cpu()]
        words = _words(queries, tokenizer), _words(keys, tokenizer)
        special = [side.special[0][side.valid[0]].tolist() for side in (queries, keys)]
        where = (_places(places, queries, single), _places(places, keys, single))
        for head, weights in zip(kept[kind, layer], real, strict=True):
            yield AttentionMap(
                kind, layer, head, text, weights.numpy(), *words, query_special=special[0], key_special=special[1],
                query_places=where[0], key_places=where[1],
            )  # fmt: skip


def _places(places: TokenPlaces | None, side: Tokens, batch: Batch) -> Places | None:
    """The places of a side's tokens; a decoder reads the text of its encoder one token later."""
    if places is None:
        return None
    here = places.shifted() if side is batch.target else places
    return Places(here.text, here.offsets, here.words)


def _row(batch: Batch, row: int) -> Batch:
    """One row of a batch as a batch."""
    size = len(batch)

    def cut(value: Any) -> Any:
        return value[row : row + 1] if isinstance(value, Tensor) and value.dim() and value.shape[0] == size else value

    def side(tokens: Tokens) -> Tokens:
        return Tokens(*(cut(t) for t in (tokens.ids, tokens.valid, tokens.special, tokens.separator)))

    inputs = {name: cut(value) for name, value in batch.inputs.items() if name != "labels"}
    target = side(batch.target) if batch.target else None
    return Batch(inputs, side(batch.source), target, batch.examples[row : row + 1])


def _sides(kind: str, batch: Batch) -> tuple[Tokens, Tokens]:
    """Where a kind's queries and keys are."""
    queries = batch.source if kind == "encoder" or batch.target is None else batch.target
    return queries, batch.source if kind == "cross" else queries


def _words(tokens: Tokens, tokenizer: Any) -> list[str]:
    ids = tokens.ids[0][tokens.valid[0]].tolist()
    if tokenizer is None:
        return [str(i) for i in ids]
    names = tokenizer.convert_ids_to_tokens(ids)
    # A start token may have no name: the students start from a vector of zeros.
    unknown = ["<start>" if place == 0 else f"<{i}>" for place, i in enumerate(ids)]
    return [other if name is None else name for name, other in zip(names, unknown, strict=True)]


def _kept(
    heads: Heads, layers: Sequence[int] | None, chosen: Sequence[HeadId] | None
) -> dict[tuple[str, int], list[int]]:
    kept: dict[tuple[str, int], list[int]] = {}
    for kind, layer, head in chosen if chosen is not None else heads.index:
        if layers is None or layer in layers:
            kept.setdefault((kind, layer), []).append(head)
    return kept


def _check_size(singles: list[Batch], count: int) -> None:
    sides = [side for single in singles for side in (single.source, single.target) if side is not None]
    longest = max((side.ids.shape[1] for side in sides), default=0)
    size = 4 * len(singles) * count * longest**2
    if size > MAX_BYTES:
        raise UsageError(
            f"The maps of {count} heads on {len(singles)} texts of {longest} tokens take {size >> 30} GiB.",
            "Choose fewer with --layers or --heads (layers=, heads=), or fewer or shorter texts.",
        )
