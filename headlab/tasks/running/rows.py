"""Token rows of examples, and batches of them: sorted by length, bounded in tokens, padded, one row or more each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headlab.base.errors import UsageError
from headlab.models.checkpoint import reserved_positions
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.special_tokens import AddedTokens, padding_id, separator_id

if TYPE_CHECKING:
    from headlab.models import Checkpoint


@dataclass(frozen=True)
class Row:
    """One sequence for the model, without padding."""

    ids: np.ndarray  # (tokens,) int64
    special: np.ndarray  # (tokens,) bool: added by the tokenizer
    counted: np.ndarray  # (tokens,) bool: tokens whose prediction counts (language models)
    side: int = 0  # which of an example's texts this row belongs to

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Example:
    """One example: its id (place in the data), its rows, the group it is stratified by, its label's id."""

    id: int
    rows: tuple[Row, ...]
    group: str = ""
    label: int = -1

    @property
    def longest(self) -> int:
        return max(len(row) for row in self.rows)


def text_rows(ids: Sequence[int], frame: AddedTokens, max_length: int | None, side: int = 0) -> tuple[Row, ...]:
    """A text's tokens as rows with their special tokens; a text beyond `max_length` tokens becomes several rows."""
    room = len(ids) if max_length is None else max_length - len(frame)
    count = max(1, -(-len(ids) // max(1, room)))
    cuts = [len(ids) * number // count for number in range(count + 1)]  # even pieces: no rest of a single token
    return tuple(_framed(ids[start:end], frame, side=side) for start, end in zip(cuts, cuts[1:], strict=False))


def window_rows(ids: Sequence[int], before: Sequence[int], max_length: int | None, side: int = 0) -> tuple[Row, ...]:
    """Rows in which a language model predicts every token of a text once.

    With special tokens before the text, each row starts with them and predicts all its own tokens. Without, each row
    starts with the last token of the row before as context, and only the text's first token is never predicted.
    """
    frame = AddedTokens(tuple(before), ())
    overlap = 0 if before else 1
    room = len(ids) if max_length is None else max_length - len(before)
    starts = range(0, max(1, len(ids) - overlap), max(1, room - overlap))
    return tuple(_framed(ids[start : start + room], frame, first_counts=bool(before), side=side) for start in starts)


def _framed(ids: Sequence[int], frame: AddedTokens, *, first_counts: bool = True, side: int = 0) -> Row:
    everything = np.array([*frame.before, *ids, *frame.after], dtype=np.int64)
    special = np.ones(len(everything), dtype=bool)
    special[len(frame.before) : len(everything) - len(frame.after)] = False
    counted = ~special
    if not first_counts:
        counted[len(frame.before)] = False
    return Row(everything, special, counted, side)


def grouped(examples: Sequence[Example], batch_size: int, max_tokens: int) -> Iterator[list[Example]]:
    """Examples of like length together: at most `batch_size` of them and `max_tokens` padded tokens, at least one."""
    waiting: list[Example] = []
    rows = 0
    for example in sorted(examples, key=lambda example: example.longest):  # stable: equal lengths keep their order
        grown = rows + len(example.rows)
        if waiting and (len(waiting) == batch_size or grown * example.longest > max_tokens):
            yield waiting
            waiting, grown = [], len(example.rows)
        waiting, rows = [*waiting, example], grown
    if waiting:
        yield waiting


def collate(examples: Sequence[Example], checkpoint: Checkpoint, *, pad_side: str = "right") -> Batch:
    """A batch of the examples' rows, those of one example next to each other.

    `examples` of the batch has one id a row. `extra` has `example` (rows,), the place of the row's example in the
    batch; `side` (rows,); `counted` (rows, tokens); `label` (examples,).
    """
    rows = [row for example in examples for row in example.rows]
    width = max(len(row) for row in rows)
    pad = padding_id(checkpoint.tokenizer)
    ids = _padded([row.ids for row in rows], width, pad, pad_side)
    valid = _padded([np.ones(len(row), dtype=bool) for row in rows], width, False, pad_side)
    special = _padded([row.special for row in rows], width, False, pad_side)
    counted = _padded([row.counted for row in rows], width, False, pad_side)
    closing = separator_id(checkpoint.tokenizer)
    separator = valid & (ids == closing) if closing is not None else torch.zeros_like(valid)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": valid.long()}
    if pad_side == "left" and not reserved_positions(checkpoint.model):
        inputs["position_ids"] = _left_positions(valid, checkpoint.model)
    extra = {
        "example": torch.tensor([place for place, example in enumerate(examples) for _ in example.rows]),
        "side": torch.tensor([row.side for row in rows]),
        "counted": counted,
        "label": torch.tensor([example.label for example in examples]),
    }
    owners = tuple(example.id for example in examples for _ in example.rows)
    return Batch(inputs, Tokens(ids, valid, special, separator), None, owners, extra)


def _left_positions(valid: torch.Tensor, model: torch.nn.Module) -> torch.Tensor:
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise UsageError(
            "The model takes no position_ids, so padding on the left would move its tokens.", 'Use pad_side="right".'
        )
    return (valid.long().cumsum(dim=1) - 1).clamp(min=0)


def _padded(rows: Sequence[np.ndarray], width: int, fill: int | bool, side: str) -> torch.Tensor:
    out = np.full((len(rows), width), fill, dtype=rows[0].dtype)
    for place, row in enumerate(rows):
        if side == "left":
            out[place, width - len(row) :] = row
        else:
            out[place, : len(row)] = row
    return torch.from_numpy(out)
