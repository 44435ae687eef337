"""Bars of what models cost: parameters, operations and cache, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headlab.base.errors import DataError, UsageError
from headlab.report.colours import COLOURS
from headlab.report.figures.style import ONE_COLUMN, figure_of, new_figure, styled

TITLES = {
    "parameters": "parameters",
    "flops_per_token": "operations per token",
    "kv_cache_bytes_per_token": "key-value cache per token (bytes)",
}


@styled
def cost_bars(costs: pd.DataFrame, *, ax: Axes | Sequence[Axes] | None = None) -> Figure:
    """Draw one panel for each column of a table of costs, one bar for each row (a model, or a pruned one).

    The index names the bars; the first row is the one that per cents are of. `ax` takes one Axes for each column.
    """
    columns = [c for c in costs.columns if pd.api.types.is_numeric_dtype(costs[c])]
    if not columns or costs.empty:
        raise DataError("The table of costs has no numbers.", f"Its columns may be {', '.join(TITLES)}.")
    if ax is None:
        figure = new_figure(ONE_COLUMN, len(columns) * (0.5 + 0.2 * len(costs)))
        axes = list(figure.subplots(len(columns), 1, squeeze=False)[:, 0])
    else:
        axes = [ax] if isinstance(ax, Axes) else list(ax)
    if len(axes) != len(columns):
        raise UsageError(f"{len(axes)} axes were given for {len(columns)} columns.", "Pass one Axes for each column.")
    for panel, column in zip(axes, columns, strict=True):
        values = costs[column].to_numpy(dtype=float)
        bars = panel.barh(np.arange(len(values)), values, color=[COLOURS[0], *[COLOURS[5]] * (len(values) - 1)])
        shares = [
            short_count(value) + (f" ({100 * value / values[0]:.0f} %)" if i and values[0] else "")
            for i, value in enumerate(values)
        ]
        panel.bar_label(bars, shares, padding=2, fontsize=6)
        panel.set_yticks(np.arange(len(values)), [str(name) for name in costs.index])
        panel.invert_yaxis()
        panel.set_title(TITLES.get(str(column), str(column).replace("_", " ")), loc="left")
        panel.set_xlim(0, max(float(np.nanmax(values)), 1e-12) * 1.45)
        panel.set_xticks([])
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    return figure_of(axes[0])


def short_count(value: float) -> str:
    """A count as people say it: 22.7 million, 46.1 thousand, 512."""
    for size, word in ((1e9, " billion"), (1e6, " million"), (1e4, " thousand")):
        if value >= size:
            return f"{value / (size if size != 1e4 else 1e3):.1f}{word}"
    return f"{value:,.0f}"
