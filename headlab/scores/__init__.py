"""What a head is worth to a task: one file per score, higher = more important."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headlab.base.errors import UsageError, unknown_name
from headlab.base.registry import Registry
from headlab.scores.context import ScoreContext as ScoreContext
from headlab.scores.measures.controls import matched_random as matched_random
from headlab.scores.score import Score as Score
from headlab.scores.score import Scores as Scores

if TYPE_CHECKING:
    import pandas as pd

    from headlab.attention.heads import Heads
    from headlab.base.progress import Progress
    from headlab.tasks import Task

ERROR = "standard_error"


def _is_score(plugin: Any) -> bool:
    """A class of scores that has a name."""
    return isinstance(plugin, type) and issubclass(plugin, Score) and hasattr(plugin, "name")


SCORES: Registry[type[Score]] = Registry("headlab.scores", "score", _is_score, besides=("score", "context"))


def score(
    name: str | Score,
    heads: Heads,
    task: Task,
    *,
    split: str = "select",
    ablation: str = "zero",
    seed: int = 0,
    progress: Progress | None = None,
    table: pd.DataFrame | None = None,
    journal: MutableMapping[str, list] | None = None,
    **settings: Any,
) -> pd.Series:
    """Importance of every head for a task: a Series indexed like `heads.index`, called `score_<name>`.

    A name may carry a variant (`gradient:per-token`, `label:induction`; `headlab list scores` names them all); a Score
    of your own is given itself. `split` names the examples that the score may see; keep the others ("report") for
    judging it. `ablation` says what takes the place of a removed head, for scores that remove heads. `table` is a head
    table of the same split, if there is one, for scores that are columns of it. What a `journal` (a mapping) holds is
    not computed again. `settings` are those of the score (`permutations=20` for shapley). Where a score knows its
    standard errors, `standard_errors(series)` gives them.

    Raises UsageError for an unknown score, variant or setting, and for heads of another model than the task's.
    """
    import pandas as pd

    if isinstance(name, str):
        chosen = make_score(name, **settings)
        base, _, suffix = name.partition(":")
        title = f"{chosen.name}:{suffix}" if suffix else chosen.name
    else:
        check_settings(type(name), settings)
        chosen = replace(name, **settings)
        title = chosen.name
    require_one_model(heads, task)
    found = chosen(ScoreContext(heads, task, split, ablation, seed, progress, table, journal))
    if not isinstance(found, Scores):
        remedy = "Return headlab.scores.Scores(values, errors), errors None where they are not known."
        raise UsageError(f"The score {title} returns {type(found).__name__}, not Scores.", remedy)
    values, errors = found
    if len(values) != len(heads.index):
        cause = f"The score {title} gives {len(values)} values for {len(heads.index)} heads."
        raise UsageError(cause, "Give one for each head, in the order of context.heads.index.")
    series = pd.Series(values, index=heads.index, name=f"score_{title}", dtype="float64")
    if errors is not None:
        series.attrs[ERROR] = [float(error) for error in errors]
    return series


def make_score(name: str, **settings: Any) -> Score:
    """The score of a name with its variants and settings; UsageError for an unknown score, variant or setting.

    Variants are joined by colons, `gradient:per-token:layer-normalised`; `settings` win over them.
    """
    base, _, suffix = name.partition(":")
    kind = SCORES.load(base)
    named: dict[str, Any] = {}
    if kind.suffix is not None:
        if not suffix:
            raise UsageError(f"The score {base} needs the name of a {kind.suffix}.", "Write label:induction, say.")
        named[kind.suffix] = suffix
    else:
        for part in filter(None, suffix.split(":")):
            if not kind.variants:
                raise UsageError(f"The score {base} has no variants, so {name} means nothing.", f"Write {base}.")
            if part not in kind.variants:
                raise unknown_name(f"variant of {base}", part, kind.variants)
            named |= kind.variants[part]
    check_settings(kind, settings)
    return kind(**(named | settings))


def check_settings(kind: type[Score], settings: dict[str, Any]) -> None:
    """Raise UsageError for settings that a score does not take."""
    for name in settings:
        if not kind.settings():
            raise UsageError(f"The score {kind.name} takes no setting {name!r}.", "It has none.")
        if name not in kind.settings():
            raise unknown_name(f"setting of {kind.name}", name, kind.settings())


def standard_errors(scores: pd.Series) -> pd.Series | None:
    """Standard errors of a score that `score` returned, indexed alike; None where the score has none.

    Of means over examples they are those of drawing other examples; shapley's are those of drawing other orders of
    heads. They are kept in `scores.attrs["standard_error"]`, as a list in the order of the index.
    """
    import pandas as pd

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
