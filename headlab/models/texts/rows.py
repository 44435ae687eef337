"""Rows of token ids: texts cut to a model's length, with their special tokens, and which rows share a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headlab.base.errors import UsageError

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint
    from headlab.models.texts.special_tokens import AddedTokens

SHORTEST = 2  # tokens of its own that a text must have: one token has nothing to look at


@dataclass(frozen=True)
class Row:
    """One sequence for the model, without padding."""

    ids: np.ndarray  # (tokens,) int64
    special: np.ndarray  # (tokens,) bool: added by the tokenizer
    counted: np.ndarray  # (tokens,) bool: tokens whose prediction counts (language models)
    side: int = 0  # which of an example's texts this row belongs to

    def __len__(self) -> int:
        return len(self.ids)


def row_limit(checkpoint: Checkpoint, frame: AddedTokens, max_length: int | None) -> int | None:
    """Tokens in a row, special ones included: `max_length`, else what the model takes; None without a limit.

    Raises UsageError for more than the model takes, and for too few beside the special tokens.
    """
    limit = checkpoint.max_length
    if max_length is not None and limit is not None and max_length > limit:
        cause = f"max_length = {max_length} is beyond the {limit} tokens that the model takes."
        raise UsageError(cause, f"Give {limit} or less; longer texts are split.")
    longest = limit if max_length is None else max_length
    if longest is not None and longest < len(frame) + SHORTEST:
        cause = f"max_length = {longest} leaves no room beside {len(frame)} special tokens."
        raise UsageError(cause, f"Give at least {len(frame) + SHORTEST}.")
    return longest


def text_rows(ids: Sequence[int], frame: AddedTokens, max_length: int | None) -> tuple[Row, ...]:
    """A text's tokens with special tokens; beyond `max_length` tokens, as few rows as fit, of as even a length as can
    be, so that none is of a single token."""
    room = len(ids) if max_length is None else max_length - len(frame)
    count = max(1, -(-len(ids) // max(1, room)))
    cuts = [len(ids) * number // count for number in range(count + 1)]
    return tuple(_framed(ids[start:end], frame.before, frame.after) for start, end in zip(cuts, cuts[1:], strict=False))


def window_rows(ids: Sequence[int], before: Sequence[int], max_length: int | None, side: int = 0) -> tuple[Row, ...]:
    """Rows in which a language model predicts every token of a text once.

    With special tokens before the text, each row starts with them and predicts all its own tokens. Without, each row
    starts with the last token of the row before as context, and only the text's first token is never predicted.
    """
    overlap = 0 if before else 1
    room = len(ids) if max_length is None else max_length - len(before)
    starts = range(0, max(1, len(ids) - overlap), max(1, room - overlap))
    return tuple(_framed(ids[start : start + room], before, (), side, bool(before)) for start in starts)


def _framed(
    ids: Sequence[int], before: Sequence[int], after: Sequence[int], side: int = 0, first_counts: bool = True
) -> Row:
    row = np.array([*before, *ids, *after], dtype=np.int64)
    special = np.ones(len(row), dtype=bool)
    special[len(before) : len(row) - len(after)] = False
    counted = ~special
    counted[:1] &= first_counts
    return Row(row, special, counted, side)


def of_like_length(
    sizes: Sequence[tuple[int, int]], batch_size: int, max_tokens: int | None = None
) -> Iterator[list[int]]:
    """Places of what goes into a batch together: at most `batch_size` and `max_tokens` padded tokens, at least one.

    `sizes` has, for each place, its number of rows and the tokens of the longest; equal lengths keep their order.
    """
    batch: list[int] = []
    rows = 0
    for place in sorted(range(len(sizes)), key=lambda place: sizes[place][1]):
        n, longest = sizes[place]
        if batch and (len(batch) == batch_size or (max_tokens is not None and (rows + n) * longest > max_tokens)):
            yield batch
            batch, rows = [], 0
        batch.append(place)
        rows += n
    if batch:
        yield batch
