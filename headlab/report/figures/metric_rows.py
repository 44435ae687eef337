"""The rows of a sweep that a figure draws: those of one metric."""

from __future__ import annotations

import pandas as pd

from headlab.base.errors import DataError, unknown_name


def metric_rows(sweep: pd.DataFrame, metric: str | None) -> tuple[str, pd.DataFrame]:
    """The metric (the sweep's first one where None is given) and its rows.

    Raises DataError for a sweep without rows, and UsageError for a metric that it lacks.
    """
    if sweep.empty:
        raise DataError("The sweep has no rows.", "Run headlab sweep first.")
    metrics = list(dict.fromkeys(sweep["metric"]))
    chosen = metrics[0] if metric is None else metric
    if chosen not in metrics:
        raise unknown_name("metric", chosen, metrics)
    return chosen, sweep[sweep["metric"] == chosen]
