"""Rise of the task's mean loss when the head alone is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headlab.attention.masks import HeadMask
from headlab.attention.seam import evaluating
from headlab.errors import DataError

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.models.batch import Batch
    from headlab.scores import Progress
    from headlab.tasks import Task


def score(
    heads: Heads,
    task: Task,
    *,
    split: str = "select",
    ablation: str = "zero",
    progress: Progress | None = None,
    **_: Any,
) -> np.ndarray:
    """Mean loss without the head minus mean loss with all heads, (heads,), in the units of the task's loss.

    The loss stands for the task's metric, since a metric such as accuracy often does not move for one head. Below 0
    the model is better off without the head. A loss that is NaN without a head stays NaN. With `ablation="mean"`
    the head's mean output over the same split takes its place. Raises DataError where the split has no examples.
    """
    batches = list(task.batches(split))
    if not batches:
        raise DataError(f"The split {split!r} has no examples.", "Give the task more data or another split.")
    means = heads.mean_outputs(batches) if ablation == "mean" else None
    steps = len(heads.index) + 1
    complete = _mean_loss(heads, task, batches)
    rises = np.empty(len(heads.index))
    for position, head in enumerate(heads.index):
        if progress:
            progress(position + 1, steps, "one head left out at a time")
        with heads.masked(HeadMask.removing([head], like=heads), ablation, means):
            rises[position] = _mean_loss(heads, task, batches) - complete
    if progress:
        progress(steps, steps, "one head left out at a time")
    return rises


def _mean_loss(heads: Heads, task: Task, batches: list[Batch]) -> float:
    with evaluating(heads.model), torch.no_grad():
        losses = [task.losses(heads.model, batch).double() for batch in batches]  # each (examples of the batch,)
    return float(torch.cat(losses).mean())
