"""What a head is worth to a task: one file per score, higher = more important."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from headlab.errors import UsageError, unknown_name
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
    **options: Any,
) -> pd.Series:
    """Importance of every head for a task: a Series indexed like `heads.index`, called `score_<name>`.

    `split` names the examples that the score may see; keep the others ("report") for judging it. `ablation` says what
    takes the place of a removed head, for scores that remove heads. `options` are those of the score's own `score`
    function. Raises UsageError for an unknown score or option and for heads of another model than the task's.
    """
    plugin = SCORES.load(name)
    _require_options(name, plugin.score, options)
    require_one_model(heads, task)
    values = plugin.score(heads, task, split=split, ablation=ablation, seed=seed, progress=progress, **options)
    return pd.Series(values, index=heads.index, name=f"score_{plugin.__name__.rpartition('.')[2]}", dtype="float64")


def _require_options(name: str, function: Callable, options: Mapping[str, Any]) -> None:
    """Raise UsageError for an option that the score does not name, rather than leave it without effect."""
    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of the score {name!r}:", option, known)


def require_one_model(heads: Heads, task: Task) -> None:
    """Raise UsageError unless the heads belong to the model that the task runs: masks would have no effect on it."""
    checkpoint = task.model
    if heads.model is not checkpoint and heads.model is not getattr(checkpoint, "model", None):
        raise UsageError(
            "The heads belong to another model than the task's, so removing them would not touch the task.",
            "Make them from the task's own model: Heads(task.model).",
        )
