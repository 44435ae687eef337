"""Mean size of the loss gradient at the head's gate (Michel et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.scores.measures.gradients import gate_gradients, layer_norms, token_gradients
from headlab.scores.measures.losses import Mean

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task

VARIANTS = {
    "per-token": {"per_token": True},
    "layer-normalised": {"layer_normalised": True},
}


def score(
    heads: Heads, task: Task, *, split: str = "select", per_token: bool = False, layer_normalised: bool = False,
    progress: Progress | None = None, **_: Any,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """I_h = mean over examples of |dL/dg_h| at g = 1, (heads,), in the units of the task's loss.

    The absolute value is taken per example, as in the paper's formula; `per_token` takes it per token and averages
    over real tokens, as in the authors' code: contributions of opposite sign within a text then do not cancel.
    `layer_normalised` divides by the l2 norm over the heads of a layer, as they do; the values are raw otherwise.

    The gate scales the head's whole contribution, so this is the first-order effect of zero ablation, whatever
    ablation the heads are later removed with. A large value may also mean a harmful head: the sign is not seen
    (`gradient_signed` does). Beside it the standard error over examples (under `layer_normalised` with the norm taken
    as known). Raises DataError where the split has no examples, UnsupportedModelError where there are no gradients.
    """
    mean = Mean()
    if per_token:
        for sums, tokens in token_gradients(heads, task, split, progress):
            mean.add(sums, tokens)
    else:
        for gradients in gate_gradients(heads, task, split, progress):
            mean.add(np.abs(gradients))
    value, error = mean.value, mean.error
    norm = layer_norms(value, heads.index) if layer_normalised else 1.0
    return value / norm, error / norm
