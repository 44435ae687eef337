"""What a head is worth to a task: one file per score, higher = more important."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from headlab.base.errors import UsageError
from headlab.scores._names import SCORES as SCORES
from headlab.scores._names import check_settings, settings_of
from headlab.scores._names import free_suffix as free_suffix
from headlab.scores._names import require_score as require_score
from headlab.scores._names import variants as variants
from headlab.scores.measures.controls import matched_random as matched_random

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

Progress = Callable[[int, int, str], None]  # (steps done, steps in all, what is being done)
ERROR = "standard_error"


def score(
    name: str,
    heads: Heads,
    task: Task,
    *,
    split: str = "select",
    ablation: str = "zero",
    seed: int = 0,
    progress: Progress | None = None,
    table: pd.DataFrame | None = None,
    **settings: Any,
) -> pd.Series:
    """Importance of every head for a task: a Series indexed like `heads.index`, called `score_<name>`.

    A name may carry a variant (`gradient:per-token`, `label:induction`; `headlab list scores` names them all).
    `split` names the examples that the score may see; keep the others ("report") for judging it. `ablation` says what
    takes the place of a removed head, for scores that remove heads. `table` is a head table of the same split, if
    there is one, for scores that are columns of it. `settings` are those of the score (`permutations=20` for
    shapley). Where a score knows its standard errors, `standard_errors(series)` gives them.

    Raises UsageError for an unknown score, variant or setting and for heads of another model than the task's.
    """
    base, _, suffix = name.partition(":")
    plugin = SCORES.load(base)
    short = plugin.__name__.rpartition(".")[2]
    chosen = settings_of(short, suffix) | settings
    check_settings(plugin, {key: value for key, value in chosen.items() if key != "ablation"})
    require_one_model(heads, task)
    common = {"split": split, "ablation": ablation, "seed": seed, "progress": progress, "table": table}
    found = plugin.score(heads, task, **(common | chosen))
    values, errors = found if isinstance(found, tuple) else (found, None)
    full_name = f"score_{short}" + (f":{suffix}" if suffix else "")
    series = pd.Series(values, index=heads.index, name=full_name, dtype="float64")
    if errors is not None:
        series.attrs[ERROR] = [float(error) for error in errors]
    return series


def standard_errors(scores: pd.Series) -> pd.Series | None:
    """Standard errors of a score that `score` returned, indexed alike; None where the score has none.

    Of means over examples they are those of drawing other examples; shapley's are those of drawing other orders of
    heads. They are kept in `scores.attrs["standard_error"]`, as a list in the order of the index.
    """
    errors = scores.attrs.get(ERROR)
    return None if errors is None else pd.Series(errors, index=scores.index, name=f"{scores.name}_{ERROR}")


def require_one_model(heads: Heads, task: Task) -> None:
    """Raise UsageError unless the heads belong to the model that the task runs: masks would have no effect on it."""
    checkpoint = task.model
    if heads.model is not checkpoint and heads.model is not getattr(checkpoint, "model", None):
        raise UsageError(
            "The heads belong to another model than the task's, so removing them would not touch the task.",
            "Make them from the task's own model: Heads(task.model).",
        )
