"""One number for a pruning curve, and how well orders and effects agree with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from headlab.errors import DataError
from headlab.pruning.significance import LEVEL, RESAMPLES, aligned_sums
from headlab.scores import score

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task
    from headlab.tasks.metrics import Metric


def curve_areas(
    sweep: pd.DataFrame, examples: pd.DataFrame, metrics: Sequence[Metric], *, seed: int = 0, level: float = LEVEL
) -> pd.DataFrame:
    """Mean drop over each curve (trapezoids over the share removed), lower is better; a row per strategy and metric.

    Columns: strategy, metric, n_orders, share (the largest share removed), area with ci_low and ci_high, and
    minus_random with its bounds: the area less the mean area of the random orders, below 0 where the strategy is the
    better one. Intervals are paired bootstraps over examples, the same draws for all curves; those of random orders
    hold for these orders. A curve with a NaN has the area NaN. Areas to different shares cannot be compared.
    """
    runs = list(dict.fromkeys(sweep["run"]))
    by_run = {key: part.set_index("example") for key, part in examples[examples["run"].isin(runs)].groupby("run")}
    rows = []
    for measured in metrics:
        own = sweep[sweep["metric"] == measured.name]
        whole, drawn = aligned_sums([by_run[key] for key in runs], list(measured.columns), RESAMPLES, seed)
        sums = np.concatenate([whole[None], drawn])
        with np.errstate(all="ignore"):
            values = np.asarray(measured.value({c: sums[..., i] for i, c in enumerate(measured.columns)}), dtype=float)
        areas = {
            str(name): np.mean([_area(part, runs, values, measured) for _, part in curves.groupby("seed")], axis=0)
            for name, curves in own.groupby("strategy", sort=False)
        }
        for name, area in areas.items():
            part = own[own["strategy"] == name]
            rows.append({
                "strategy": name, "metric": measured.name, "n_orders": part["seed"].nunique(),
                "share": float((part["n_removed"] / part["n_heads"]).max()),
                **_bounds("area", "ci", area, level),
                **_bounds("minus_random", "minus_random", area - areas["random"], level),
            })  # fmt: skip
    return pd.DataFrame(rows)


def _area(curve: pd.DataFrame, runs: list[str], values: np.ndarray, metric: Metric) -> np.ndarray:
    """Mean drop over the shares of one order, (1 + resamples,)."""
    points = curve.drop_duplicates("n_removed").sort_values("n_removed")
    share = (points["n_removed"] / points["n_heads"]).to_numpy(dtype=float)
    if len(points) < 2 or share[-1] == 0:
        return np.full(len(values), np.nan)
    curve_values = values[:, [runs.index(key) for key in points["run"]]]
    drops = np.asarray(metric.drop(curve_values[:, :1], curve_values), dtype=float)
    return np.trapezoid(drops, share, axis=1) / share[-1]


def _bounds(name: str, prefix: str, values: np.ndarray, level: float) -> dict[str, float]:
    low, high = np.quantile(values[1:], [(1 - level) / 2, (1 + level) / 2])
    return {name: float(values[0]), f"{prefix}_low": float(low), f"{prefix}_high": float(high)}


class _Half:
    """A task of which the select split is only some of its examples."""

    def __init__(self, task: Task, ids: np.ndarray) -> None:
        self._task, self._ids = task, np.sort(ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def split(self, name: str) -> np.ndarray:
        return self._ids if name == "select" else self._task.split(name)

    def batches(self, split: str = "all", examples: Any = None) -> Any:
        wanted = self._ids if split == "select" else None
        if examples is not None:
            wanted = np.asarray(sorted(examples)) if wanted is None else np.intersect1d(wanted, list(examples))
        return self._task.batches(split, examples=wanted)


def rank_stability(
    name: str, heads: Heads, task: Task, *, seeds: int = 3, seed: int = 0, **settings: Any
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
            score(name, heads, _Half(task, part), seed=2 * number + which, **settings)  # type: ignore[arg-type]
            for which, part in enumerate((drawn[:half], drawn[half : 2 * half]))
        ]
        rows.append({"score": name, "seed": number, "n_examples": half, "spearman": rank_correlation(*pair)})
    return pd.DataFrame(rows)


def rank_correlation(first: pd.Series, second: pd.Series) -> float:
    """Spearman's rho over the heads that both have; NaN where one of them is constant."""
    both = pd.concat([first, second], axis=1, join="inner").dropna()
    if len(both) < 3 or (both.nunique() < 2).any():
        return float("nan")
    return float(stats.spearmanr(both.iloc[:, 0], both.iloc[:, 1]).statistic)


def effect_correlation(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Do heads matter alike in two runs? Correlation of single-head drops (tables of `single_heads`), metric by metric.

    A row for each metric that both have: n_heads, pearson with its 95 % interval (Fisher's z), spearman. Michel et al.
    report .56 between two translation test sets. Raises DataError where no head or metric is in both.
    """
    keys = ["kind", "layer", "head", "metric"]
    both = first[[*keys, "drop"]].merge(second[[*keys, "drop"]], on=keys, suffixes=("", "_there")).dropna()
    if both.empty:
        raise DataError("The two runs share no head and metric.", "Compare runs of one model and like tasks.")
    rows = []
    for name, part in both.groupby("metric", sort=False):
        x, y = part["drop"].to_numpy(), part["drop_there"].to_numpy()
        known = len(part) > 3 and np.ptp(x) > 0 and np.ptp(y) > 0
        found = stats.pearsonr(x, y) if known else None
        low, high = found.confidence_interval(LEVEL) if found else (np.nan, np.nan)
        rows.append({
            "metric": name, "n_heads": len(part), "pearson": float(found.statistic) if found else np.nan,
            "ci_low": float(low), "ci_high": float(high),
            "spearman": float(stats.spearmanr(x, y).statistic) if known else np.nan,
        })  # fmt: skip
    return pd.DataFrame(rows)
