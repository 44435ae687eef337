"""Rise of the task's mean loss when the head alone is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.base.errors import UsageError, unknown_name
from headlab.scores.measures.leave_one_out import Journal, LeftOut, all_rises
from headlab.scores.measures.searches import WANTED, check_search, race, screen

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task

VARIANTS = {
    "zero": {"ablation": "zero"},
    "mean": {"ablation": "mean"},
    "resample": {"ablation": "resample"},
    "uniform": {"ablation": "uniform"},
    "screen": {"search": "screen"},
    "race": {"search": "race"},
}
SEARCHES = ("screen", "race")


def score(
    heads: Heads,
    task: Task,
    *,
    split: str = "select",
    ablation: str = "zero",
    seed: int = 0,
    progress: Progress | None = None,
    journal: Journal | None = None,
    search: str | None = None,
    end: str = "top",
    wanted: int | None = None,
    **_: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean loss without the head minus mean loss with all heads, (heads,), in the units of the task's loss.

    The loss stands for the task's metric, since a metric such as accuracy often does not move for one head. Below 0
    the model is better off without the head. A loss that is NaN without a head stays NaN. Under `mean` and `resample`
    what takes the head's place is taken from the same split. Beside it the standard error of the mean of the paired
    differences over examples. What a `journal` (a mapping) holds is not computed again.

    `search="screen"` or "race" measures exactly only the heads that may be among the `wanted` (20, or all where there
    are fewer) largest (`end="top"`) or smallest ("bottom") rises; the others get an estimate and a standard error of
    NaN. Raises DataError where the split has no examples (`resample`: fewer than 2; a race: fewer than 32), UsageError
    for what cannot be searched.
    """
    left_out = LeftOut(heads, task, split, ablation, seed, journal)
    if search is not None:
        sought = min(WANTED, len(heads.index)) if wanted is None else wanted
        return _searched(left_out, search, end, sought, seed, progress)
    rises = all_rises(left_out, progress)  # (heads, examples)
    n = rises.shape[1]
    errors = rises.std(axis=1, ddof=1) / n**0.5 if n > 1 else np.full(len(rises), np.nan)
    return rises.mean(axis=1), errors


def _searched(
    left_out: LeftOut, search: str, end: str, wanted: int, seed: int, progress: Progress | None
) -> tuple[np.ndarray, np.ndarray]:
    if search not in SEARCHES:
        raise unknown_name("search", search, SEARCHES)
    check_search(end, wanted, len(left_out.heads.index))
    if search == "race":
        return race(left_out, progress, end, wanted, seed)
    if left_out.ablation != "zero":
        raise UsageError(f"Gradients predict zero ablation, so they cannot screen for {left_out.ablation} ablation.",
                         "Use ablation:race, which does not rest on the prediction, or zero ablation.")  # fmt: skip
    return screen(left_out, progress, end, wanted)
