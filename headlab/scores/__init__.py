"""What a head is worth to a task: one file per score, higher = more important."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd

from headlab.errors import UsageError
from headlab.registry import Registry

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

SCORES = Registry("headlab.scores", "score")
Progress = Callable[[int, int, str], None]  # (steps done, steps in all, what is being done)


def score(
    name: str,
    heads: Heads,
    task: Task,
    *,
    split: str = "select",
    ablation: str = "zero",
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.Series:
    """Importance of every head for a task: a Series indexed like `heads.index`, called `score_<name>`.

    `split` names the examples that the score may see; keep the others ("report") for judging it. `ablation` says what
    takes the place of a removed head, for scores that remove heads. Raises UsageError for an unknown score and for
    heads of another model than the task's.
    """
    plugin = SCORES.load(name)
    require_one_model(heads, task)
    values = plugin.score(heads, task, split=split, ablation=ablation, seed=seed, progress=progress)
    return pd.Series(values, index=heads.index, name=f"score_{plugin.__name__.rpartition('.')[2]}", dtype="float64")


def require_one_model(heads: Heads, task: Task) -> None:
    """Raise UsageError unless the heads belong to the model that the task runs: masks would have no effect on it."""
    checkpoint = task.model
    if heads.model is not checkpoint and heads.model is not getattr(checkpoint, "model", None):
        raise UsageError(
            "The heads belong to another model than the task's, so removing them would not touch the task.",
            "Make them from the task's own model: Heads(task.model).",
        )
