"""Rise of the task's mean loss when the head alone is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.scores._leave_one_out import Journal, LeftOut, all_rises

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
    journal: Journal | None = None,
    **_: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean loss without the head minus mean loss with all heads, (heads,), in the units of the task's loss.

    The loss stands for the task's metric, since a metric such as accuracy often does not move for one head. Below 0
    the model is better off without the head. A loss that is NaN without a head stays NaN. Under `mean` and `resample`
    what takes the head's place is taken from the same split. Beside it the standard error of the mean of the paired
    differences over examples. What a `journal` (a mapping) holds is not computed again. Raises DataError where the
    split has no examples (`resample`: fewer than 2).
    """
    rises = all_rises(LeftOut(heads, task, split, ablation, seed, journal), progress)  # (heads, examples)
    n = rises.shape[1]
    errors = rises.std(axis=1, ddof=1) / n**0.5 if n > 1 else np.full(len(rises), np.nan)
    return rises.mean(axis=1), errors
