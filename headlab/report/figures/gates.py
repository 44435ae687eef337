"""Histogram of learned gates: how many are all but open or all but closed, at every penalty."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headlab.base.errors import DataError, UsageError
from headlab.report.colours import COLOURS
from headlab.report.figures.style import ONE_COLUMN, figure_of, new_figure, styled

BINS = np.linspace(0, 1, 21)


@styled
def gate_histogram(gates: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw how the gates' P(open) are spread, one outline for each penalty, all seeds together.

    `gates` is the table of a ladder of hard concrete gates, with the columns `level` and `p_open`. Voita et al. find
    gates either almost open or almost closed. Raises UsageError for a table without these columns.
    """
    for column in ("level", "p_open"):
        if column not in gates.columns:
            raise UsageError(f"The table has no column {column!r}.", "Draw the `gates` of headlab.pruning.ladder.")
    rows = gates.dropna(subset="p_open")
    if rows.empty:
        raise DataError("There is no gate to draw.", "Draw the gates of a ladder of hard concrete gates.")
    axes = new_figure(ONE_COLUMN, 2.4).subplots() if ax is None else ax
    for i, (level, part) in enumerate(rows.groupby("level")):
        share = np.histogram(part["p_open"], BINS)[0] / len(part)
        axes.stairs(
            100 * share, BINS, color=COLOURS[i % len(COLOURS)], linewidth=1.3, label=f"{level:g}", gid=str(level)
        )
    axes.set_xlim(0, 1)
    axes.set_xlabel("P(open)")
    axes.set_ylabel("gates (%)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, title="penalty for an open gate", title_fontsize=7, loc="upper center")
    return figure_of(axes)
