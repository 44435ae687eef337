"""Relevance of the head's output for the prediction, by layer-wise relevance propagation (Voita et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from headlab.attention.change.output_gradients import output_slopes, query_tokens, require_projections
from headlab.attention.change.relevance import relevance_rules
from headlab.base.errors import UnsupportedModelError
from headlab.scores.measures.gradients import sum_by_example
from headlab.scores.measures.losses import Mean, batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.models.texts.batch import Batch
    from headlab.scores import Progress
    from headlab.tasks import Task

VARIANTS = {"raw": {"share": False}, "top-logit": {"top_logit": True}}


def score(
    heads: Heads, task: Task, *, split: str = "select", share: bool = True, top_logit: bool = False,
    progress: Progress | None = None, **_: Any,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Mean over examples of the relevance that the head's output has for minus the task's loss, (heads,).

    Relevance starts at the model's output as output times slope of minus the loss, or (`top-logit`, Voita's own) as
    the largest logit of every real token, and is passed down by the rules of `relevance_rules`: the paper's
    w u / sum w u through linear layers and sums; softmax, norms and activations are not explained but taken as
    constant factors, as the paper ignores them. So attention weights get no relevance, only what they carry does. By
    default each example's values are divided by the layer's sum of sizes: a share of the layer, -1 to 1 (the
    paper's, where all are positive), which hides that a whole layer may not matter; `raw` keeps the units of the
    start. Beside it the standard error over examples. Raises DataError where the split has no examples,
    UnsupportedModelError where there are no gradients, no single projections, or (`top-logit`) no logits.
    """
    require_projections(heads, "given relevance")
    mean, seen, n_examples = Mean(), 0, len(task.split(split))
    for batch in batches_of(task, split):
        rows = _relevances(heads, batch, _top_logit if top_logit else lambda model, here: -task.losses(model, here))
        found = sum_by_example(np.concatenate(rows, 1), batch.examples)
        if share:
            found = _shares(found, heads)
        mean.add(found)
        seen += len(found)
        if progress:
            progress(seen, n_examples, "relevance")
    return mean.value, mean.error


def _relevances(heads: Heads, batch: Batch, start: Any) -> list[np.ndarray]:
    """Relevance of every head, one array (row, heads) per layer."""
    rows = []
    for (kind, _), (z, slope) in output_slopes(heads, batch, start, inside=relevance_rules).items():
        valid = query_tokens(batch, kind).valid.to(z.device)[..., None, None]
        rows.append((z.double() * slope.double() * valid).sum((1, 3)).cpu().numpy())
    return rows


def _shares(found: np.ndarray, heads: Heads) -> np.ndarray:
    """Values (examples, heads) over the sum of their sizes in each layer; 0 where all are."""
    parts, start = [], 0
    for site in heads.sites:
        part = found[:, start : start + site.n_heads]
        sizes = np.abs(part).sum(1, keepdims=True)
        parts.append(np.divide(part, sizes, out=np.zeros_like(part), where=sizes > 0))
        start += site.n_heads
    return np.concatenate(parts, 1)


def _top_logit(model: nn.Module, batch: Batch) -> Tensor:
    """The largest logit, summed over real tokens where there is one prediction per token, (row,)."""
    logits = getattr(model(**batch.inputs), "logits", None)
    if not isinstance(logits, Tensor):
        raise UnsupportedModelError(f"{type(model).__name__} returns no logits.", "Use lrp, which starts at the loss.")
    top = logits.amax(-1)
    if top.dim() == 1:
        return top
    valid = (batch.target or batch.source).valid
    return torch.where(valid.to(top.device), top, 0).sum(1)
