"""Relevance of heads on one batch, by layer-wise relevance propagation (Voita et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from headlab.attention.change.output_gradients import output_slopes
from headlab.attention.change.relevance import relevance_rules
from headlab.base.errors import UnsupportedModelError

if TYPE_CHECKING:
    from headlab.models.texts.batch import Batch
    from headlab.scores.context import ScoreContext


def relevance(context: ScoreContext, batch: Batch, *, top_logit: bool) -> np.ndarray:
    """Relevance of every head for minus the loss, or for the largest logit, (examples of the batch, heads)."""
    start = largest_logit if top_logit else lambda model, batch: -context.task.losses(model, batch)
    rows = []
    for (kind, _), (z, slope) in output_slopes(context.heads.subject, batch, start, inside=relevance_rules).items():
        valid = batch.queries(kind).valid.to(z.device)[..., None, None]
        rows.append((z.double() * slope.double() * valid).sum((1, 3)))
    return batch.sum_by_example(torch.cat(rows, 1).cpu()).numpy()


def largest_logit(model: nn.Module, batch: Batch) -> Tensor:
    """The largest logit, summed over real tokens where there is one prediction per token, (row,)."""
    logits = getattr(model(**batch.inputs), "logits", None)
    if not isinstance(logits, Tensor):
        raise UnsupportedModelError(f"{type(model).__name__} returns no logits.", "Use lrp, which starts at the loss.")
    top = logits.amax(-1)
    if top.dim() == 1:
        return top
    return torch.where(batch.queries("decoder").valid.to(top.device), top, 0).sum(1)
