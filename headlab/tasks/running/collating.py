"""Examples of a task made into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from headlab.models.texts.batch import Batch
from headlab.models.texts.padding import model_inputs, padded, padded_tokens
from headlab.models.texts.rows import of_like_length

if TYPE_CHECKING:
    from headlab.models import Checkpoint
    from headlab.tasks.running.examples import Example


def grouped(examples: Sequence[Example], batch_size: int, max_tokens: int) -> Iterator[list[Example]]:
    """Examples of like length together: at most `batch_size` of them and `max_tokens` padded tokens, at least one."""
    for places in of_like_length([example.size for example in examples], batch_size, max_tokens):
        yield [examples[place] for place in places]


def collate(examples: Sequence[Example], checkpoint: Checkpoint, *, pad_side: str = "right") -> Batch:
    """A batch of the examples' rows, those of one example next to each other.

    `examples` of the batch has one id a row. `extra` has `example` (rows,), the place of the row's example in the
    batch; `side` (rows,); `counted` (rows, tokens); `label` (examples,).
    """
    rows = [row for example in examples for row in example.rows]
    tokens = padded_tokens(checkpoint.tokenizer, [row.ids for row in rows], [row.special for row in rows], pad_side)
    extra = {
        "example": torch.tensor([place for place, example in enumerate(examples) for _ in example.rows]),
        "side": torch.tensor([row.side for row in rows]),
        "counted": padded([row.counted for row in rows], False, pad_side),
        "label": torch.tensor([example.label for example in examples]),
    }
    owners = tuple(example.id for example in examples for _ in example.rows)
    return Batch(model_inputs(checkpoint.model, tokens, None, pad_side), tokens, None, owners, extra)
