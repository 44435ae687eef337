"""Is a drop more than luck of the examples: paired bootstrap from per-example sufficient statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from headlab.base.errors import HeadlabError

if TYPE_CHECKING:
    from headlab.metrics import Metric

RESAMPLES = 1000
LEVEL = 0.95
CHUNK_BYTES = 2**26  # of resampling weights held at a time


def paired_bootstrap(
    baseline: pd.DataFrame,
    masked: Sequence[pd.DataFrame],
    metrics: Sequence[Metric],
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> pd.DataFrame:
    """Value, baseline, drop and the percentile interval of the drop, for every mask and metric.

    Each table holds one row per example and the metrics' sufficient statistics as columns. The examples are drawn
    with replacement `resamples` times, the same ones for the baseline and under every mask (paired), and each
    metric is computed from the sums over them, as it is over all examples. `drop` > 0 is worse whatever the metric's
    direction. The result is indexed by (mask, metric), mask being the place in `masked`. Intervals are NaN where a
    metric is, and with fewer than two examples. Raises HeadlabError where the evaluations saw different examples.
    """
    columns = sorted({column for metric in metrics for column in metric.columns})
    stacked = _aligned([baseline, *masked], columns)  # (examples, evaluations, columns)
    n_examples = len(stacked)
    with np.errstate(all="ignore"):  # a metric may be NaN or infinite under a mask; that is a result
        whole = stacked.sum(axis=0)[None]
        drawn = np.concatenate([_sums(weights, stacked) for weights in drawn_counts(n_examples, resamples, seed)])
        parts = [_compare(metric, columns, whole, drawn, level) for metric in metrics]
    table = pd.concat(parts, keys=[metric.name for metric in metrics], names=["metric"])
    if n_examples < 2:
        table[["ci_low", "ci_high"]] = np.nan
    return table.swaplevel().sort_index(level="mask", sort_remaining=False)


def aligned_sums(
    tables: Sequence[pd.DataFrame], columns: list[str], resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the columns over all examples, (tables, columns), and over drawn ones, (resamples, tables, columns)."""
    stacked = _aligned(tables, columns)
    drawn = np.concatenate([_sums(weights, stacked) for weights in drawn_counts(len(stacked), resamples, seed)])
    return stacked.sum(axis=0), drawn


def _aligned(tables: Sequence[pd.DataFrame], columns: list[str]) -> np.ndarray:
    """All statistics as one array (examples, evaluations, columns), examples in the baseline's order."""
    examples = tables[0].index
    for table in tables[1:]:
        if len(table) != len(examples) or not examples.isin(table.index).all():
            raise HeadlabError(
                f"Two evaluations to compare saw different examples ({len(examples)} and {len(table)}).",
                "Evaluate both on the same split of the same data.",
            )
    return np.stack([table.loc[examples, columns].to_numpy(dtype=float) for table in tables], axis=1)


def drawn_counts(n_examples: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each example is drawn, in pieces (resamples of the piece, examples)."""
    rng = np.random.default_rng(seed)
    step = max(1, CHUNK_BYTES // (8 * n_examples))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(n_examples, size=(rows, n_examples)) + np.arange(rows)[:, None] * n_examples
        counts = np.bincount(drawn.ravel(), minlength=rows * n_examples)
        yield counts.reshape(rows, n_examples).astype(float)


def _sums(weights: np.ndarray, stacked: np.ndarray) -> np.ndarray:
    """Sums of the statistics over the drawn examples, (resamples, evaluations, columns)."""
    flat = stacked.reshape(len(stacked), -1)
    return (weights @ flat).reshape(len(weights), *stacked.shape[1:])


def _compare(metric: Metric, columns: list[str], whole: np.ndarray, drawn: np.ndarray, level: float) -> pd.DataFrame:
    """One metric's rows, indexed by mask; `whole` and `drawn` are sums (resamples, evaluations, columns)."""
    place = {column: columns.index(column) for column in metric.columns}
    value, resampled = (
        np.asarray(metric.value({column: sums[..., i] for column, i in place.items()}), dtype=float)
        for sums in (whole, drawn)
    )  # each (resamples, evaluations)
    drops = metric.drop(resampled[:, :1], resampled[:, 1:])
    low, high = np.quantile(drops, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return pd.DataFrame(
        {
            "value": value[0, 1:],
            "baseline": value[0, 0],
            "drop": metric.drop(value[0, 0], value[0, 1:]),
            "ci_low": low,
            "ci_high": high,
        },
        index=pd.RangeIndex(value.shape[1] - 1, name="mask"),
    )


def paired_p(whole: pd.DataFrame, masked: pd.DataFrame, metric: Metric, *, resamples: int = RESAMPLES) -> float:
    """Two-sided p of "the mask changes nothing", from the same examples with and without it.

    Metrics that are a mean over examples or follow from a sum over a fixed count (accuracy, loss, perplexity):
    Student's paired t test of the summed column, exact sign test where all changes are of one size (right or wrong).
    Other metrics (BLEU): the drop over its bootstrap standard error against the normal distribution. 1 where no
    example changes, NaN where a value is.
    """
    if len(metric.columns) > 2:
        return _bootstrap_p(whole, masked, metric, resamples)
    column = metric.columns[0]
    change = (masked[column] - whole[column]).to_numpy(dtype=float)
    if np.isnan(change).any():
        return float("nan")
    moved = change[change != 0]
    if not len(moved):
        return 1.0
    if np.ptp(np.abs(moved)) == 0:
        return float(stats.binomtest(int((moved > 0).sum()), len(moved)).pvalue)
    return float(stats.ttest_1samp(change, 0.0).pvalue)


def _bootstrap_p(whole: pd.DataFrame, masked: pd.DataFrame, metric: Metric, resamples: int) -> float:
    columns = list(metric.columns)
    stacked = _aligned([whole, masked], columns)
    with np.errstate(all="ignore"):
        sums = np.concatenate([_sums(weights, stacked) for weights in drawn_counts(len(stacked), resamples, 0)])
        values = np.asarray(metric.value({c: sums[..., i] for i, c in enumerate(columns)}), dtype=float)
        total = stacked.sum(axis=0)
        found = np.asarray(metric.value({c: total[:, i] for i, c in enumerate(columns)}), dtype=float)
    drop, spread = float(found[1] - found[0]), float(np.std(values[:, 1] - values[:, 0]))
    if spread == 0 or np.isnan(drop):
        return float("nan") if np.isnan(drop) else float(drop == 0)
    return float(2 * stats.norm.sf(abs(drop) / spread))


def adjusted(p: np.ndarray) -> np.ndarray:
    """Benjamini-Hochberg adjusted p values; NaN stays and counts as no test."""
    p = np.asarray(p, dtype=float)
    found = np.full(p.shape, np.nan)
    there = ~np.isnan(p)
    if there.any():
        found[there] = stats.false_discovery_control(p[there], method="bh")
    return found
