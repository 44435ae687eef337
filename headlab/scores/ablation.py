"""Rise of the task's mean loss when the head alone is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.attention.masks import HeadMask
from headlab.scores._losses import Losses

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task

VARIANTS = {
    "zero": {"ablation": "zero"},
    "mean": {"ablation": "mean"},
    "resample": {"ablation": "resample"},
    "uniform": {"ablation": "uniform"},
}


def score(
    heads: Heads,
    task: Task,
    *,
    split: str = "select",
    ablation: str = "zero",
    seed: int = 0,
    progress: Progress | None = None,
    **_: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean loss without the head minus mean loss with all heads, (heads,), in the units of the task's loss.

    The loss stands for the task's metric, since a metric such as accuracy often does not move for one head. Below 0
    the model is better off without the head. A loss that is NaN without a head stays NaN. Under `mean` and `resample`
    what takes the head's place is taken from the same split. Beside it the standard error of the mean of the paired
    differences over examples. Raises DataError where the split has no examples (`resample`: fewer than 2).
    """
    losses = Losses(heads, task, split, ablation, seed)
    steps = len(heads.index) + 1
    complete = losses.of(HeadMask.full(heads))
    rises, errors = np.empty((2, len(heads.index)))
    for position, head in enumerate(heads.index):
        if progress:
            progress(position + 1, steps, "one head left out at a time")
        rise = losses.of(HeadMask.removing([head], like=heads)) - complete
        rises[position] = rise.mean()
        errors[position] = rise.std(ddof=1) / len(rise) ** 0.5 if len(rise) > 1 else np.nan
    if progress:
        progress(steps, steps, "one head left out at a time")
    return rises, errors
