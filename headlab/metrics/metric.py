"""What a metric is: a function of sums over examples, and what is known about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Sums = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number about a set of examples that is a function of sums over them.

    `columns` are the sufficient statistics that a task stores for every example (counts, summed log-probabilities,
    n-gram matches). `value` takes their sums, arrays of one shape, and returns an array of that shape; it must work on
    any leading shape, because a bootstrap passes the sums of all its resamples at once. NaN sums give NaN.

    `title` is a few words and `text` a sentence for people, `unit` "" where there is none, `bounds` the values that
    the metric cannot leave, (low, high), None where there are none, `source` the paper or program it follows.
    """

    name: str
    columns: tuple[str, ...]
    value: Callable[[Sums], np.ndarray]
    higher_is_better: bool
    title: str = ""
    text: str = ""
    unit: str = ""
    bounds: tuple[float, float] | None = None
    definition: str = ""
    source: str = ""

    @property
    def best(self) -> str:
        """Which values are good, in words."""
        return "higher is better" if self.higher_is_better else "lower is better"

    def of(self, examples: Mapping[str, np.ndarray]) -> float:
        """The metric over all rows of a table of per-example columns; NaN where a needed value is NaN."""
        sums = {name: np.asarray(examples[name], dtype=np.float64).sum(axis=0) for name in self.columns}
        return float(self.value(sums))

    def drop(self, baseline: np.ndarray | float, value: np.ndarray | float) -> np.ndarray | float:
        """How much worse `value` is than `baseline`, in the metric's unit; above 0 means worse."""
        return baseline - value if self.higher_is_better else value - baseline


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Elementwise quotient; NaN, without a warning, where the denominator is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.asarray(numerator, dtype=np.float64) / denominator
    return np.where(np.asarray(denominator) == 0, np.nan, quotient)
