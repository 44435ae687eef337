"""One number for a pruning curve, and how well orders and effects agree with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from headlab.base.errors import DataError
from headlab.pruning.significance import LEVEL, RESAMPLES, aligned_sums
from headlab.scores import score

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.metrics import Metric
    from headlab.tasks import Task


def curve_areas(
    sweep: pd.DataFrame, examples: pd.DataFrame, metrics: Sequence[Metric], *, whole: str | None = None, seed: int = 0,
    level: float = LEVEL,
) -> pd.DataFrame:  # fmt: skip
    """Mean drop over each curve (trapezoids over the share removed), lower is better; a row per strategy and metric.

    Columns: strategy, metric, n_orders, share (the largest share removed), area with ci_low and ci_high, and
    minus_random with its bounds: the area less the mean area of the random orders, both up to the smallest share that
    any of these curves reaches, below 0 where the strategy is the better one. Drops are from the model with all heads,
    whose run is `whole` (by default that of the rows which remove nothing); a curve without such a row, as learned
    gates have, begins at a drop of 0. Intervals are paired bootstraps over examples, the same draws for all curves;
    those of random orders hold for these orders. A curve with a NaN has the area NaN. Areas to different shares cannot
    be compared.
    """
    first = str(sweep.loc[sweep["n_removed"] == 0, "run"].iloc[0]) if whole is None else whole
    runs = list(dict.fromkeys([first, *sweep["run"]]))
    by_run = {key: part.set_index("example") for key, part in examples[examples["run"].isin(runs)].groupby("run")}
    rows = []
    for measured in metrics:
        own = sweep[sweep["metric"] == measured.name]
        sums, drawn = aligned_sums([by_run[key] for key in runs], list(measured.columns), RESAMPLES, seed)
        both = np.concatenate([sums[None], drawn])
        with np.errstate(all="ignore"):
            values = np.asarray(measured.value({c: both[..., i] for i, c in enumerate(measured.columns)}), dtype=float)
        found = pd.DataFrame(np.asarray(measured.drop(values[:, :1], values), dtype=float), columns=runs)
        curves = {
            str(name): [_Curve.of(part, found) for _, part in orders.groupby("seed")]
            for name, orders in own.groupby("strategy", sort=False)
        }
        for name, orders in curves.items():
            shares = [curve.share[-1] for curve in orders]
            area = np.mean([curve.mean_drop(share) for curve, share in zip(orders, shares, strict=True)], axis=0)
            rows.append({
                "strategy": name, "metric": measured.name, "n_orders": len(orders), "share": float(max(shares)),
                **_bounds("area", "ci", area, level),
                **_bounds("minus_random", "minus_random", _difference(orders, curves["random"]), level),
            })  # fmt: skip
    return pd.DataFrame(rows)


class _Curve(NamedTuple):
    """One order: shares removed, (points,) from 0 upwards, and drops there, (1 + resamples, points)."""

    share: np.ndarray
    drops: np.ndarray

    @classmethod
    def of(cls, rows: pd.DataFrame, drops: pd.DataFrame) -> _Curve:
        """The curve of one strategy and seed, from the drops of every run (1 + resamples, runs)."""
        points = rows.drop_duplicates("n_removed").sort_values("n_removed")
        share = (points["n_removed"] / points["n_heads"]).to_numpy(dtype=float)
        found = drops[list(points["run"])].to_numpy()
        if share[0] > 0:
            share, found = np.append(0.0, share), np.column_stack([np.zeros(len(found)), found])
        return cls(share, found)

    def mean_drop(self, end: float) -> np.ndarray:
        """Mean drop from 0 to the share `end`, (1 + resamples,); NaN where nothing is removed."""
        if end <= 0:
            return np.full(len(self.drops), np.nan)
        after = int(np.searchsorted(self.share, end))  # the first point at or beyond the end
        left, right = self.share[after - 1], self.share[after]
        weight = (end - left) / (right - left)
        last = (1 - weight) * self.drops[:, after - 1] + weight * self.drops[:, after]
        share = np.append(self.share[:after], end)
        return np.trapezoid(np.column_stack([self.drops[:, :after], last]), share, axis=1) / end


def _difference(curves: Sequence[_Curve], random: Sequence[_Curve]) -> np.ndarray:
    """Mean drop of some curves less that of the random ones, as far as all of them go."""
    end = min(curve.share[-1] for curve in (*curves, *random))
    first, second = (np.mean([curve.mean_drop(end) for curve in part], axis=0) for part in (curves, random))
    return first - second


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
