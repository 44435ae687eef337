"""Sink map: attention to the first token over layer and head, with the heads that are sinks outlined."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headlab.report.colours import COLOURS
from headlab.report.figures.grid import by_kind, require_heads
from headlab.report.figures.heat import heat_map
from headlab.report.figures.style import styled


@styled
def sink_map(
    heads: pd.DataFrame, *, column: str = "first_mass", log: bool = False, ax: Axes | Sequence[Axes] | None = None
) -> Figure:
    """Draw where attention is parked on the first token; heads that carry the label `sink` are outlined.

    `ax` takes one Axes for each kind of attention. Raises UsageError where the table lacks the column.
    """
    heads = require_heads(heads)
    figure = heat_map(heads, column, ax=ax, log=log)
    panels = figure.axes if ax is None else [ax] if isinstance(ax, Axes) else list(ax)
    if "sink" in heads.columns:
        for panel, (_, rows) in zip(panels, by_kind(heads), strict=False):
            for layer, head in rows.index[rows["sink"].fillna(False).astype(bool)]:
                panel.add_patch(
                    Rectangle(
                        (head - 0.45, layer - 0.45),
                        0.9,
                        0.9,
                        fill=False,
                        edgecolor=COLOURS[1],
                        linewidth=0.8,
                        gid="sink",
                    )
                )
    return figure
