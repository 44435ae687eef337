"""Mean of minus the loss gradient at the head's gate: by sign, below 0 for a head that does harm."""

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
    """Mean over examples of -dL/dg_h at g = 1, (heads,), in the units of the task's loss.

    To first order it is the rise of the mean loss when the head is set to zero, where `gradient` has its mean size.
    Beside it the standard error over examples. Raises DataError where the split has no examples,
    UnsupportedModelError where there are no gradients.
    """
    mean = Mean()
    for gradients in gate_gradients(heads, task, split, progress):
        mean.add(-gradients)
    return mean.value, mean.error
