"""Mean squared loss gradient at the head's gate: the diagonal of the empirical Fisher information of the gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.scores.measures.gradients import gate_gradients
from headlab.scores.measures.losses import Mean

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task


def score(
    heads: Heads, task: Task, *, split: str = "select", progress: Progress | None = None, **_: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Mean over examples of (dL/dg_h)^2 at g = 1, (heads,), in squared units of the task's loss (Kwon et al. 2022).

    Squares are taken per example, never of a batch's sum. Beside it the standard error over examples. Raises
    DataError where the split has no examples, UnsupportedModelError where there are no gradients.
    """
    mean = Mean()
    for gradients in gate_gradients(heads, task, split, progress):
        mean.add(gradients**2)
    return mean.value, mean.error
