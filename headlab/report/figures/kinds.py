"""Pruning by kind of attention: one panel for each strategy, one line for each kind (Michel et al. 2019, figure 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headlab.base.errors import UsageError
from headlab.report.colours import COLOURS
from headlab.report.facts import define
from headlab.report.figures.curve import MARKERS, bound_axis, share_removed, value_interval
from headlab.report.figures.metric_rows import metric_rows
from headlab.report.figures.style import ONE_COLUMN, TWO_COLUMNS, figure_of, new_figure, styled


@styled
def pruning_by_kind(
    sweep: pd.DataFrame, metric: str | None = None, *, ax: Axes | Sequence[Axes] | None = None
) -> Figure:
    """Draw what it costs to remove heads of one kind of attention alone, of another, and of all together.

    A sweep holds several kinds where it is joined from sweeps with different `kinds`. `ax` takes one Axes for each
    strategy. Raises UsageError for a metric that the sweep lacks.
    """
    metric, rows = metric_rows(sweep, metric)
    strategies = list(dict.fromkeys(rows["strategy"].astype(str)))
    axes = _axes(ax, len(strategies))
    for panel, strategy in zip(axes, strategies, strict=True):
        own = rows[rows["strategy"] == strategy]
        for i, kinds in enumerate(dict.fromkeys(own["kinds"])):
            _line(panel, own[own["kinds"] == kinds], str(kinds), i)
        panel.set_title(strategy)
        panel.set_xlabel("heads of the kind removed (%)")
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(define(metric).axis)
    bound_axis(axes[0], metric)
    axes[0].legend(frameon=False)
    return figure_of(axes[0])


def _axes(ax: Axes | Sequence[Axes] | None, count: int) -> list[Axes]:
    if ax is None:
        figure = new_figure(ONE_COLUMN if count == 1 else TWO_COLUMNS, 2.5)
        return list(figure.subplots(1, count, squeeze=False, sharey=True)[0])
    given = [ax] if isinstance(ax, Axes) else list(ax)
    if len(given) != count:
        raise UsageError(f"{len(given)} axes were given for {count} strategies.", "Pass one Axes for each strategy.")
    return given


def _line(axes: Axes, rows: pd.DataFrame, name: str, i: int) -> None:
    """Mean over seeds; the interval where there is one row for each budget."""
    shares = share_removed(rows)
    means = rows["value"].where(np.isfinite(rows["value"])).groupby(shares).mean()
    colour = COLOURS[i % len(COLOURS)]
    axes.plot(means.index, means, marker=MARKERS[i % len(MARKERS)], markersize=3.5, color=colour, label=name)
    if not shares.duplicated().any():
        low, high = value_interval(rows)
        ordered = shares.sort_values().index
        axes.fill_between(
            shares[ordered],
            low[ordered].astype(float),
            high[ordered].astype(float),
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
