"""Texts as a model reads them: token ids with their special tokens, cut where they are too long, in padded batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headlab.base.errors import DataError, UsageError
from headlab.models.checkpoint import require_known_ids
from headlab.models.state import device_of
from headlab.models.texts.batch import Batch
from headlab.models.texts.padding import decoder_tokens, model_inputs, padded_tokens
from headlab.models.texts.rows import SHORTEST, of_like_length, row_limit, text_rows
from headlab.models.texts.special_tokens import added_tokens

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint


@dataclass(frozen=True)
class EncodedTexts:
    """Sequences of token ids, each a text or a piece of one, with the special tokens that the tokenizer adds."""

    ids: list[list[int]]
    special: list[list[bool]]  # added by the tokenizer
    text: list[int]  # which text each sequence is from
    n_texts: int  # texts given
    n_split: int  # texts cut in pieces because they were too long
    n_too_short: int  # texts left out
    start: list[int]  # how many tokens of its text come before each sequence

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_chunks(self) -> int:
        """Sequences in all: texts kept whole, and the pieces of split ones."""
        return len(self.ids)


def encode_texts(checkpoint: Checkpoint, texts: Sequence[str], *, max_length: int | None = None) -> EncodedTexts:
    """Token ids of texts; those beyond `max_length` tokens (else the model's limit) are split into even pieces.

    Each piece gets its own special tokens, which count towards the limit. Texts with fewer than 2 tokens of their own
    are left out and counted. Raises UsageError for a limit that cannot be kept, DataError where no text is left.
    """
    if checkpoint.tokenizer is None:
        cause = f"The model {checkpoint.name!r} has no tokenizer, and texts were given."
        raise UsageError(cause, "Save its tokenizer into the folder of the model.")
    if isinstance(texts, str):
        raise UsageError("One string was given, and a list of texts is read.", "Put it into a list.")
    frame = added_tokens(checkpoint.tokenizer)
    limit = row_limit(checkpoint, frame, max_length)
    encoded = EncodedTexts([], [], [], len(texts), 0, 0, [])
    n_split = n_too_short = 0
    bare = checkpoint.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    for number, tokens in enumerate(bare):
        if len(tokens) < SHORTEST:
            n_too_short += 1
            continue
        rows = text_rows(tokens, frame, limit)
        n_split += len(rows) > 1
        encoded.ids.extend(row.ids.tolist() for row in rows)
        encoded.special.extend(row.special.tolist() for row in rows)
        encoded.text.extend([number] * len(rows))
        encoded.start.extend(itertools.accumulate((len(row) - len(frame) for row in rows[:-1]), initial=0))
    if not encoded.ids:
        raise DataError(f"None of the {len(texts)} texts has {SHORTEST} tokens or more.", "Give longer texts.")
    require_known_ids(checkpoint, max(map(max, encoded.ids)))
    return replace(encoded, n_split=n_split, n_too_short=n_too_short)


def batches(
    encoded: EncodedTexts, checkpoint: Checkpoint, *, batch_size: int = 16, pad_side: str = "right"
) -> Iterator[Batch]:
    """Batches of sequences of like length; `examples` of a batch are the places of its sequences in `encoded`.

    A sequence-to-sequence model's decoder is given the same text, shifted right by its start token.
    """
    if batch_size < 1:
        raise UsageError(f"batch_size = {batch_size} is no number of texts.", "Give 1 or more.")
    if pad_side not in ("left", "right"):
        raise UsageError(f"pad_side = {pad_side!r} is no side.", 'Give "right" or "left".')
    together = of_like_length([(1, len(ids)) for ids in encoded.ids], batch_size)
    return (_batch(encoded, checkpoint, places, pad_side) for places in together)


def text_batches(
    checkpoint: Checkpoint, texts: Sequence[str], *, batch_size: int = 16, max_length: int | None = None
) -> list[Batch]:
    """Texts as batches: `encode_texts` and `batches` in one."""
    return list(batches(encode_texts(checkpoint, texts, max_length=max_length), checkpoint, batch_size=batch_size))


def _batch(encoded: EncodedTexts, checkpoint: Checkpoint, places: Sequence[int], pad_side: str) -> Batch:
    ids, special = [encoded.ids[place] for place in places], [encoded.special[place] for place in places]
    source = padded_tokens(checkpoint.tokenizer, ids, special, pad_side)
    target = decoder_tokens(checkpoint, ids, special, pad_side) if checkpoint.is_encoder_decoder else None
    inputs = model_inputs(checkpoint.model, source, target, pad_side)
    return Batch(inputs, source, target, examples=tuple(places)).to(device_of(checkpoint.model))
