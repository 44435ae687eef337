"""Heads over training: one column of every head, from checkpoint to checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headlab.base.errors import DataError, unknown_name
from headlab.base.masks import head_names
from headlab.report.colours import COLOURS, GREY
from headlab.report.facts import define
from headlab.report.figures.grid import require_heads
from headlab.report.figures.style import ONE_COLUMN, figure_of, new_figure, styled


@styled
def heads_over_training(tables: Mapping[int, pd.DataFrame], column: str, *, ax: Axes | None = None) -> Figure:
    """Draw a column of every head over the training step; `tables` is {step: head table}.

    The three heads that change most are coloured and named. Raises DataError for fewer than two steps, UsageError
    for a column that a table lacks.
    """
    if len(tables) < 2:
        raise DataError(f"{len(tables)} steps were given; two are needed.", "Pass one head table for each checkpoint.")
    for table in tables.values():
        if column not in table.columns:
            raise unknown_name("column", column, map(str, table.columns))
    steps = sorted(tables)
    values = pd.DataFrame({step: require_heads(tables[step])[column].astype("Float64").astype(float) for step in steps})
    axes = new_figure(ONE_COLUMN, 2.6).subplots() if ax is None else ax
    moved = (values.max(axis=1) - values.min(axis=1)).sort_values(ascending=False, kind="stable").index[:3]
    for head, row in values.iterrows():
        if head not in moved:
            axes.plot(steps, row[steps], color=GREY, alpha=0.35, linewidth=0.6)
    for head, name, colour in zip(moved, head_names(moved), COLOURS, strict=False):
        axes.plot(steps, values.loc[head, steps], color=colour, linewidth=1.5, label=name)
    axes.set_xlabel("training step")
    axes.set_ylabel(define(column).axis)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure_of(axes)
