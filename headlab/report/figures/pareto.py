"""Pareto curve: for every number of heads removed, the best value that any cut reached."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headlab.report.colours import COLOURS, GREY, MORE_COLOURS
from headlab.report.facts import define
from headlab.report.figures.metric_rows import metric_rows
from headlab.report.figures.style import ONE_COLUMN, figure_of, new_figure, styled

_COLOURS = (*COLOURS, *MORE_COLOURS)


def pareto_front(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of one metric that no other row beats: none removes as many heads or more at a smaller drop."""
    finite = rows[np.isfinite(rows["drop"].astype(float))]
    ordered = finite.sort_values(["n_removed", "drop"], ascending=[False, True], kind="stable")
    front = ordered[ordered["drop"] < ordered["drop"].cummin().shift(fill_value=np.inf)]
    return front.sort_values("n_removed", kind="stable")


@styled
def pareto(sweep: pd.DataFrame, metric: str | None = None, *, ax: Axes | None = None) -> Figure:
    """Draw the drop of every cut against the per cent of heads removed, and the front of the cuts that none beats.

    Made for learned gates, where each strength of the penalty gives one cut; any sweep will do. Random orders are
    grey. Raises UsageError for a metric that the sweep lacks.
    """
    metric, rows = metric_rows(sweep, metric)
    rows = rows[np.isfinite(rows["drop"].astype(float))]
    axes = new_figure(ONE_COLUMN, 2.6).subplots() if ax is None else ax
    strategies = list(dict.fromkeys(rows["strategy"].astype(str)))
    if "random" in strategies:  # first, so that no control hides what it is the control of
        _points(axes, rows[rows["strategy"] == "random"], "random", GREY)
    for i, strategy in enumerate(s for s in strategies if s != "random"):
        _points(axes, rows[rows["strategy"] == strategy], strategy, _COLOURS[i % len(_COLOURS)])
    front = pareto_front(rows)
    axes.plot(
        100 * front["n_removed"] / front["n_heads"],
        front["drop"],
        color="black",
        linewidth=1,
        drawstyle="steps-pre",
        label="none does better",
        gid="front",
        zorder=1,
    )
    axes.axhline(0, color="black", linewidth=0.6, linestyle=(0, (4, 3)))
    axes.set_xlabel("heads removed (%)")
    axes.set_ylabel(f"drop in {define(metric).axis}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure_of(axes)


def _points(axes: Axes, rows: pd.DataFrame, name: str, colour: str) -> None:
    axes.scatter(100 * rows["n_removed"] / rows["n_heads"], rows["drop"], s=12, color=colour, label=name, gid=name)
