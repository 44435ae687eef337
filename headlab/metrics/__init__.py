"""Metrics: numbers computed from summed per-example columns, so that a bootstrap needs no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from headlab.base.registry import Registry

METRICS = Registry("headlab.metrics", "metric")

Sums = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Metric:
    """A number about a set of examples that is a function of sums over them.

    `columns` are the sufficient statistics that a task stores for every example (counts, summed log-probabilities,
    n-gram matches). `value` takes their sums, arrays of one shape, and returns an array of that shape; it must work on
    any leading shape, because a bootstrap passes the sums of all its resamples at once. NaN sums give NaN.
    """

    name: str
    columns: tuple[str, ...]
    value: Callable[[Sums], np.ndarray]
    higher_is_better: bool
    unit: str
    definition: str

    def of(self, examples: Mapping[str, np.ndarray]) -> float:
        """The metric over all rows of a table of per-example columns; NaN where a needed value is NaN."""
        sums = {name: np.asarray(examples[name], dtype=np.float64).sum(axis=0) for name in self.columns}
        return float(self.value(sums))

    def drop(self, baseline: np.ndarray | float, value: np.ndarray | float) -> np.ndarray | float:
        """How much worse `value` is than `baseline`, in the metric's unit; above 0 means worse."""
        return baseline - value if self.higher_is_better else value - baseline


def metric(name: str) -> Metric:
    """The metric of that name; raises UsageError with the closest name and the list where there is none."""
    return METRICS.load(name).METRIC


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Elementwise quotient; NaN, without a warning, where the denominator is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.asarray(numerator, dtype=np.float64) / denominator
    return np.where(np.asarray(denominator) == 0, np.nan, quotient)
