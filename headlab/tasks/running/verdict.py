"""What a choice among labels amounts to, per example."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from headlab.base.errors import UsageError
from headlab.models.texts.batch import Batch


def text_logits(model: nn.Module, batch: Batch, name: str) -> Tensor:
    """Logits (examples, labels) of a classifier, averaged over the rows of each example.

    Raises UsageError for a model that gives none; `name` is what the message calls it.
    """
    output = model(**batch.inputs)
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        cause = f"{name!r} gives no logits for a whole text."
        raise UsageError(cause, "Name a sequence classifier, or use the task probe.")
    logits = logits.float()
    return batch.sum_by_example(logits) / batch.sum_by_example(torch.ones_like(logits[:, :1]))


def verdict(logits: Tensor, batch: Batch) -> dict[str, Tensor]:
    """Columns `loss` (cross-entropy, nats), `correct` and `examples`, (examples,) each, from (examples, labels).

    NaN logits give a NaN verdict, not a wrong one.
    """
    loss = functional.cross_entropy(logits, batch.extra["label"], reduction="none")
    right = (logits.detach().argmax(dim=1) == batch.extra["label"]).to(loss.dtype)
    correct = torch.where(loss.detach().isnan(), torch.nan, right)
    return {"loss": loss, "correct": correct, "examples": torch.ones_like(right)}
