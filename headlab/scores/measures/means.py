"""Means over examples with their standard errors, from values that come batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from headlab.base.errors import DataError
from headlab.scores.score import Scores

if TYPE_CHECKING:
    from headlab.models.texts.batch import Batch
    from headlab.scores.context import ScoreContext

Measured = np.ndarray | tuple[np.ndarray, np.ndarray]  # values, or sums with their weights, each (examples, heads)


class Mean:
    """Mean and standard error of rows (examples, heads) that come in pieces; memory does not grow with them.

    With weights the mean is that of sums over sums of weights (per token, say), with the error of such a ratio.
    """

    def __init__(self) -> None:
        self.n = 0
        self._sums: np.ndarray | None = None  # (5, heads): x, w, xx, xw, ww

    def add(self, rows: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add one value per example and head, sums over `weights` items each, which have one row per example too."""
        rows = np.asarray(rows, dtype=float)
        weights = np.ones_like(rows) if weights is None else np.broadcast_to(weights, rows.shape).astype(float)
        sums = np.stack([x.sum(0) for x in (rows, weights, rows * rows, rows * weights, weights * weights)])
        self._sums = sums if self._sums is None else self._sums + sums
        self.n += len(rows)

    @property
    def scores(self) -> Scores:
        """The mean, (heads,), NaN where nothing was counted, and its standard error, NaN with fewer than 2 examples."""
        if self._sums is None:
            raise DataError("There are no examples, and a score needs at least 1.", "Give the task more data.")
        x, w, xx, xw, ww = self._sums
        with np.errstate(all="ignore"):
            ratio = np.where(w > 0, x / w, np.nan)
            squares = np.maximum(xx - 2 * ratio * xw + ratio**2 * ww, 0)
            error = np.sqrt(squares * self.n / (self.n - 1)) / w if self.n > 1 else np.full(len(w), np.nan)
        return Scores(ratio, error)


def mean_over_examples(context: ScoreContext, measure: Callable[[Batch], Measured], what: str) -> Scores:
    """Mean over the examples of a split of what `measure` says of a batch, with its standard error, each (heads,).

    `measure` gives a value per example and head, (examples of the batch, heads), or sums and the number of items in
    them (tokens, say). Raises DataError where the split has no examples.
    """
    mean, steps = Mean(), context.steps(context.n_examples, what)
    for batch in context.batches():
        found = measure(batch)
        rows, weights = found if isinstance(found, tuple) else (found, None)
        mean.add(rows, weights)
        steps(len(rows))
    return mean.scores


def mean_and_error(values: np.ndarray) -> Scores:
    """Mean and standard error over examples of values (heads, examples), each (heads,)."""
    n = values.shape[1]
    return Scores(values.mean(axis=1), values.std(axis=1, ddof=1) / n**0.5 if n > 1 else np.full(len(values), np.nan))
