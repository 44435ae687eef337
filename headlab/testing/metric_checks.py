"""Checks of a metric of one's own: facts, any leading shape, NaN in NaN out, bounds, direction."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from headlab import Metric
from headlab.testing.checks import errors_told, require, require_alike, require_facts


def check_metric(metric: Metric, examples: Mapping[str, np.ndarray] | None = None) -> None:
    """Raise AssertionError, with a sentence, where a metric breaks a rule that headlab relies on.

    `examples` are columns of per-example statistics, (examples,), such as its task makes; without them only what must
    hold of any sums is checked.
    """
    who = f"The metric {getattr(metric, 'name', metric)}"
    require(isinstance(metric, Metric), f"{metric!r} is no headlab.Metric.")
    require_facts(metric, "metric")
    columns = metric.columns
    require(
        columns and all(isinstance(column, str) for column in columns), f"{who} names no columns to sum over examples."
    )
    if metric.bounds is not None:
        require(metric.bounds[0] < metric.bounds[1], f"{who} has bounds that hold no value: {metric.bounds}.")
    with errors_told(who):
        _check_shapes(metric, who)
        _check_nan(metric, who)
        _check_bounds(metric, who, examples)
        baseline = np.array([0.25, 0.5])
        require_alike(metric.drop(baseline, baseline), np.zeros(2), f"{who} gives a drop where nothing has changed.")


def _quiet(metric: Metric, who: str, sums: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of sums, without a warning and without changing them."""
    kept = {name: np.array(array) for name, array in sums.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            values = np.asarray(metric.value(sums))
        except Warning as warning:
            raise AssertionError(f"{who} warns on sums of 0 or NaN: {warning}.") from warning
    for name, array in sums.items():
        require_alike(array, kept[name], f"{who} changes the sums that it is given ({name}).")
    return values


def _check_shapes(metric: Metric, who: str) -> None:
    draw = np.random.default_rng(0)
    sums = {column: draw.uniform(1, 2, size=(5, 3)) for column in metric.columns}
    values = _quiet(metric, who, sums)
    require(
        values.shape == (5, 3),
        f"{who} gives shape {values.shape} for sums of shape (5, 3): a bootstrap passes many at once.",
    )
    alone = [[float(metric.value({c: a[i, j] for c, a in sums.items()})) for j in range(3)] for i in range(5)]
    require_alike(values, alone, f"{who} gives other values for sums that are passed together.", 1e-9)
    require_alike(_quiet(metric, who, sums), values, f"{who} gives another value for the same sums.")


def _check_nan(metric: Metric, who: str) -> None:
    for spoilt in metric.columns:
        sums = {column: np.array([1.0, np.nan if column == spoilt else 1.0]) for column in metric.columns}
        require(np.isnan(_quiet(metric, who, sums)[1]), f"{who} gives a number where {spoilt} is NaN.")
    _quiet(metric, who, {column: np.zeros(2) for column in metric.columns})


def _check_bounds(metric: Metric, who: str, examples: Mapping[str, np.ndarray] | None) -> None:
    sums = {column: np.array([1.0, 7.0]) for column in metric.columns}
    values = [*np.ravel(_quiet(metric, who, sums))]
    if examples is not None:
        missing = [column for column in metric.columns if column not in examples]
        require(not missing, f"{who} needs columns that the examples do not have: {', '.join(missing)}.")
        values.append(metric.of(examples))
    low, high = metric.bounds or (-np.inf, np.inf)
    outside = [value for value in values if not np.isnan(value) and not low - 1e-9 <= value <= high + 1e-9]
    require(not outside, f"{who} leaves its bounds {metric.bounds}: {outside}.")
