"""What a choice among labels amounts to, per example."""

from __future__ import annotations

import torch
from torch import Tensor

from headlab.models.texts.batch import Batch


def n_in(batch: Batch) -> int:
    """Number of distinct examples in a batch; each may have several rows."""
    return len(dict.fromkeys(batch.examples))


def sum_by_example(rows: Tensor, batch: Batch) -> Tensor:
    """(rows, ...) summed over the rows of each example: (examples, ...)."""
    out = torch.zeros((n_in(batch), *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
    return out.index_add(0, batch.extra["example"], rows)


def mean_by_example(rows: Tensor, batch: Batch) -> Tensor:
    """(rows, ...) averaged over the rows of each example: (examples, ...)."""
    share = sum_by_example(torch.ones_like(rows[:, :1]), batch)
    return sum_by_example(rows, batch) / share


def verdict(loss: Tensor, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Columns of a classifier from logits (examples, labels); NaN logits give a NaN verdict, not a wrong one."""
    right = (logits.detach().argmax(dim=1) == batch.extra["label"]).to(loss.dtype)
    return {
        "loss": loss,
        "correct": torch.where(loss.detach().isnan(), torch.nan, right),
        "examples": torch.ones_like(right),
    }
