"""One number for a pruning curve: the mean drop over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from headlab.pruning.significance import LEVEL, RESAMPLES, aligned_sums

if TYPE_CHECKING:
    from headlab.metrics import Metric


def curve_areas(
    sweep: pd.DataFrame,
    examples: pd.DataFrame,
    metrics: Sequence[Metric],
    *,
    whole: str | None = None,
    seed: int = 0,
    level: float = LEVEL,
) -> pd.DataFrame:
    """Mean drop over each curve (trapezoids over the share removed), lower is better; a row per strategy and metric.

    Columns: strategy, metric, n_orders, share (the largest share removed), area with ci_low and ci_high, and
    minus_random with its bounds: the area less the mean area of the random orders, both up to the smallest share that
    any of these curves reaches, below 0 where the strategy is the better one. Drops are from the model with all heads,
    whose key is `whole` (by default that of the rows which remove nothing); a curve without such a row, as learned
    gates have, begins at a drop of 0. Intervals are paired bootstraps over examples, the same draws for all curves;
    those of random orders hold for these orders. A curve with a NaN has the area NaN. Areas to different shares cannot
    be compared.
    """
    first = str(sweep.loc[sweep["n_removed"] == 0, "run"].iloc[0]) if whole is None else whole
    keys = list(dict.fromkeys([first, *sweep["run"]]))
    by_key = {key: part.set_index("example") for key, part in examples[examples["run"].isin(keys)].groupby("run")}
    rows = []
    for measured in metrics:
        own = sweep[sweep["metric"] == measured.name]
        sums, drawn = aligned_sums([by_key[key] for key in keys], list(measured.columns), RESAMPLES, seed)
        every = np.concatenate([sums[None], drawn])
        with np.errstate(all="ignore"):
            values = np.asarray(measured.value({c: every[..., i] for i, c in enumerate(measured.columns)}), dtype=float)
        found = pd.DataFrame(np.asarray(measured.drop(values[:, :1], values), dtype=float), columns=keys)
        curves = {
            str(name): [_Curve.of(part, found) for _, part in orders.groupby("seed")]
            for name, orders in own.groupby("strategy", sort=False)
        }
        for name, orders in curves.items():
            shares = [curve.share[-1] for curve in orders]
            area = np.mean([curve.mean_drop(share) for curve, share in zip(orders, shares, strict=True)], axis=0)
            facts = {"strategy": name, "metric": measured.name, "n_orders": len(orders), "share": float(max(shares))}
            difference = _difference(orders, curves["random"])
            bounds = _bounds("minus_random", "minus_random", difference, level)
            rows.append({**facts, **_bounds("area", "ci", area, level), **bounds})
    return pd.DataFrame(rows)


class _Curve(NamedTuple):
    """One order: shares removed, (points,) from 0 upwards, and drops there, (1 + resamples, points)."""

    share: np.ndarray
    drops: np.ndarray

    @classmethod
    def of(cls, rows: pd.DataFrame, drops: pd.DataFrame) -> _Curve:
        """The curve of one strategy and seed, from the drops of every evaluation (1 + resamples, evaluations)."""
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
