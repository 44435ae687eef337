"""Mean size of the loss gradient at the head's gate (Michel et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.errors import DataError

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task


def score(heads: Heads, task: Task, *, split: str = "select", progress: Progress | None = None, **_: Any) -> np.ndarray:
    """I_h = mean over examples of |dL/dg_h| at g = 1, (heads,), in the units of the task's loss.

    The absolute value is taken per example, as in the paper's formula; the values are raw, not normalised by layer.
    The gate scales the head's whole contribution, so this is the first-order effect of zero ablation, whatever
    ablation the heads are later removed with. A large value may also mean a harmful head: the sign is not seen.
    Raises DataError where the split has no examples.
    """
    n_examples = len(task.split(split))
    total, seen = np.zeros(len(heads.index)), 0
    for gradients in heads.gradients(task.batches(split), task.losses):  # (examples, heads)
        total += np.abs(np.asarray(gradients, dtype=float)).sum(axis=0)
        seen += len(gradients)
        if progress:
            progress(seen, n_examples, "gradients")
    if not seen:
        raise DataError(f"The split {split!r} has no examples.", "Give the task more data or another split.")
    return total / seen
