"""How well orders and effects agree: a score on two halves of the examples, single-head drops of two tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from scipy import stats

from headlab.base.errors import DataError
from headlab.pruning.significance import LEVEL
from headlab.scores import Score, score

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task


class OnSomeExamples:
    """A task of which the select split is only some of its examples; everything else is the task's own."""

    def __init__(self, task: Task, examples: np.ndarray) -> None:
        self._task, self._examples = task, np.sort(examples)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def split(self, name: str) -> np.ndarray:
        """Sorted ids of the examples of a split."""
        return self._examples if name == "select" else self._task.split(name)

    def batches(self, split: str = "all", examples: Collection[int] | None = None) -> Iterator[Batch]:
        """The split's examples as batches, or only those of `examples`."""
        if split == "select":
            examples = self._examples if examples is None else np.intersect1d(self._examples, list(examples))
        return self._task.batches(split, examples=examples)


def rank_stability(
    name: str | Score, heads: Heads, task: Task, *, seeds: int = 3, seed: int = 0, **settings: Any
) -> pd.DataFrame:
    """How alike a score ranks heads on two disjoint halves of the select split, for `seeds` ways to halve it.

    A row per way: score, seed, n_examples (of a half), spearman. The halves also get different seeds, so that scores
    which draw at random differ as two runs would. Raises DataError for fewer than 4 examples.
    """
    ids = task.split("select")
    if len(ids) < 4:
        raise DataError(f"{len(ids)} examples cannot be halved; at least 4 are needed.", "Give a larger select split.")
    rows = []
    for number in range(seed, seed + seeds):
        drawn = np.random.default_rng(number).permutation(ids)
        half = len(ids) // 2
        pair = [
            score(name, heads, cast("Task", OnSomeExamples(task, part)), seed=2 * number + turn, **settings)
            for turn, part in enumerate((drawn[:half], drawn[half : 2 * half]))
        ]
        title = str(pair[0].name).removeprefix("score_")
        rows.append({"score": title, "seed": number, "n_examples": half, "spearman": rank_correlation(*pair)})
    return pd.DataFrame(rows)


def rank_correlation(first: pd.Series, second: pd.Series) -> float:
    """Spearman's rho over the heads that both have; NaN where one of them is constant."""
    both = pd.concat([first, second], axis=1, join="inner").dropna()
    if len(both) < 3 or (both.nunique() < 2).any():
        return float("nan")
    return float(stats.spearmanr(both.iloc[:, 0], both.iloc[:, 1]).statistic)


def effect_correlation(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Do heads matter alike in two tables of `single_heads`? Correlation of their drops, metric by metric.

    A row for each metric that both have: n_heads, pearson with its 95 % interval (Fisher's z), spearman. Michel et al.
    report .56 between two translation test sets. Raises DataError where no head or metric is in both.
    """
    keys = ["kind", "layer", "head", "metric"]
    both = first[[*keys, "drop"]].merge(second[[*keys, "drop"]], on=keys, suffixes=("", "_there")).dropna()
    if both.empty:
        raise DataError("The two tables share no head and metric.", "Compare tables of one model and like tasks.")
    rows = []
    for name, part in both.groupby("metric", sort=False):
        x, y = part["drop"].to_numpy(), part["drop_there"].to_numpy()
        known = len(part) > 3 and np.ptp(x) > 0 and np.ptp(y) > 0
        found = stats.pearsonr(x, y) if known else None
        low, high = found.confidence_interval(LEVEL) if found else (np.nan, np.nan)
        pearson = float(found.statistic) if found else np.nan
        spearman = float(stats.spearmanr(x, y).statistic) if known else np.nan
        facts = {"metric": name, "n_heads": len(part), "pearson": pearson, "ci_low": float(low), "ci_high": float(high)}
        rows.append({**facts, "spearman": spearman})
    return pd.DataFrame(rows)
