"""Gradients with respect to heads, example by example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headlab.base.masks import HeadMask
    from headlab.models.texts.batch import Batch
    from headlab.scores.context import ScoreContext


def gate_gradients(context: ScoreContext, batch: Batch, at: HeadMask | None = None) -> np.ndarray:
    """D loss / d gate, (examples of the batch, heads), gates at 1, or those of removed heads of `at` at 0."""
    return np.asarray(next(context.heads.gradients([batch], context.task.losses, at=at)), dtype=float)


def token_gradients(context: ScoreContext, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Sums over real tokens of |z_h . d loss / d z_h| and the number of those tokens, each (examples, heads)."""
    import torch

    from headlab.attention.change.output_gradients import output_slopes

    sums, counts = [], []
    for (kind, _), (z, slope) in output_slopes(context.heads.subject, batch, context.task.losses).items():
        valid = batch.queries(kind).valid.to(z.device)
        sizes = (z.double() * slope.double()).sum(-1).abs() * valid[..., None]  # (row, token, head)
        sums.append(sizes.sum(1))
        counts.append(valid.sum(1, keepdim=True).expand_as(sums[-1]))
    by_example = (batch.sum_by_example(torch.cat(part, 1).cpu()).double().numpy() for part in (sums, counts))
    return next(by_example), next(by_example)
