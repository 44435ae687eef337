"""Attention maps of a few texts with their tokens: what `headlab dump --maps` stores and a notebook shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from headlab.attention.prove.proofs import capture_maps
from headlab.attention.subject import Subject
from headlab.base.errors import UsageError
from headlab.base.masks import HeadId, HeadMask, LayerKey
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.places import TokenPlaces
from headlab.runs.maps import AttentionMap, Maps, Places

MAX_BYTES = 4 << 30
PlacesOf = Callable[[int], TokenPlaces]  # example id -> where its tokens are in their text


def attention_maps(
    subject: Subject,
    batches: Sequence[Batch],
    n: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[HeadId] | None = None,
    places_of: PlacesOf | None = None,
) -> Maps:
    """Maps of the first n texts (all without n) by example id, padding cut off, heads in the order of the head table.

    `places_of` tells where the tokens are in their text, where that is known.
    Raises UsageError for heads and layers that do not exist, and for more than 4 GiB of maps.
    """
    rows = sorted((example, b, r) for b, batch in enumerate(batches) for r, example in enumerate(batch.examples))[:n]
    singles = [(_row(batches[b], r), places_of(example) if places_of else None) for example, b, r in rows]
    kept = chosen_heads(subject, layers, heads)
    if heads is not None and layers is not None and not kept:
        raise UsageError("None of the heads of --heads is in the layers of --layers.", "Leave out one of the two.")
    _check_size([single for single, _ in singles], sum(map(len, kept.values())))
    return Maps(
        one for text, (single, places) in enumerate(singles) for one in _of_text(subject, single, text, kept, places)
    )


def captured(
    subject: Subject, batch: Batch, layers: Sequence[int] | None = None, heads: Sequence[HeadId] | None = None
) -> dict[LayerKey, Tensor]:
    """Attention maps (batch, head, query, key) in float32 by (kind, layer), of all heads or of some.

    Raises UsageError for layers and heads that do not exist, UnsupportedModelError where attention is not seen.
    """
    if not isinstance(batch, Batch):
        cause = f"capture takes a headlab.Batch, not {type(batch).__name__}."
        raise UsageError(cause, "Make one with headlab.text_batches(checkpoint, texts).")
    chosen = None if layers is None and heads is None else chosen_heads(subject, layers, heads)
    subject.need_sight(chosen)
    with evaluating(subject.module):
        return capture_maps(subject.module, batch.to(subject.device), subject.sites, subject.view, chosen)


def chosen_heads(
    subject: Subject, layers: Sequence[int] | None, heads: Sequence[HeadId] | None
) -> dict[LayerKey, list[int]]:
    """Heads by (kind, layer), in the order in which they were named; UsageError for those that do not exist."""
    named = [HeadId(*head) for head in (subject.index if heads is None else heads)]
    HeadMask.removing(named, like=subject)  # refuses heads that do not exist
    known = {layer for _, layer in subject.heads_per_layer}
    for layer in layers or ():
        if layer not in known:
            raise UsageError(f"The model has no layer {layer}.", f"It has layers {min(known)} to {max(known)}.")
    kept: dict[LayerKey, list[int]] = {}
    for kind, layer, head in named:
        if layers is None or layer in layers:
            kept.setdefault((kind, layer), []).append(head)
    return kept


def _of_text(
    subject: Subject, single: Batch, text: int, kept: Mapping[LayerKey, list[int]], places: TokenPlaces | None
) -> Iterator[AttentionMap]:
    tokenizer = subject.checkpoint.tokenizer if subject.checkpoint else None
    named = [HeadId(*key, head) for key, heads in kept.items() for head in heads]
    for (kind, layer), maps in captured(subject, single, heads=named).items():  # (1, head, query, key)
        queries, keys = single.queries(kind), single.keys(kind)
        real = maps[0].cpu()[:, queries.valid[0].cpu()][:, :, keys.valid[0].cpu()]
        query_words, key_words = _words(queries, tokenizer), _words(keys, tokenizer)
        query_special, key_special = (side.special[0][side.valid[0]].tolist() for side in (queries, keys))
        for head, weights in zip(kept[kind, layer], real, strict=True):
            yield AttentionMap(
                kind,
                layer,
                head,
                text,
                weights.numpy(),
                query_words,
                key_words,
                query_special=query_special,
                key_special=key_special,
                query_places=_places(places, queries, single),
                key_places=_places(places, keys, single),
            )


def _places(places: TokenPlaces | None, side: Tokens, batch: Batch) -> Places | None:
    """The places of a side's tokens; a decoder reads the text of its encoder one token later."""
    if places is None:
        return None
    own = places.shifted() if side is batch.target else places
    return Places(own.text, own.offsets, own.words)


def _row(batch: Batch, row: int) -> Batch:
    """One row of a batch as a batch."""
    size = len(batch)

    def cut(value: Any) -> Any:
        return value[row : row + 1] if isinstance(value, Tensor) and value.dim() and value.shape[0] == size else value

    inputs = {name: cut(value) for name, value in batch.inputs.items() if name != "labels"}
    target = batch.target.map(cut) if batch.target else None
    return Batch(inputs, batch.source.map(cut), target, batch.examples[row : row + 1])


def _words(tokens: Tokens, tokenizer: Any) -> list[str]:
    ids = tokens.ids[0][tokens.valid[0]].tolist()
    if tokenizer is None:
        return [str(i) for i in ids]
    names = tokenizer.convert_ids_to_tokens(ids)
    # A start token may have no name: the students start from a vector of zeros.
    unknown = ["<start>" if place == 0 else f"<{i}>" for place, i in enumerate(ids)]
    return [other if name is None else name for name, other in zip(names, unknown, strict=True)]


def _check_size(singles: list[Batch], count: int) -> None:
    longest = max((side.ids.shape[1] for single in singles for side in single.sides), default=0)
    size = 4 * len(singles) * count * longest**2
    if size > MAX_BYTES:
        raise UsageError(
            f"The maps of {count} heads on {len(singles)} texts of {longest} tokens take {size >> 30} GiB.",
            "Choose fewer with --layers or --heads (layers=, heads=), or fewer or shorter texts.",
        )
