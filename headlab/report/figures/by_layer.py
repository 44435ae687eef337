"""Statistics by layer: a point for each head and the mean of each layer (Clark et al. 2019, figures 2 to 4)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headlab.base.errors import DataError, unknown_name
from headlab.report.colours import COLOURS
from headlab.report.facts import define
from headlab.report.figures.grid import by_kind, require_heads
from headlab.report.figures.style import ONE_COLUMN, figure_of, new_figure, styled

MASSES = ("first_mass", "separator_mass", "prev_mass", "next_mass", "self_mass")
_DASHES = {"encoder": "-", "decoder": "--", "cross": ":"}


@styled
def entropy_by_layer(heads: pd.DataFrame, *, column: str = "entropy", ax: Axes | None = None) -> Figure:
    """Draw the entropy of every head over its layer, and the mean of each layer (Clark's figure 4).

    Raises UsageError for a column that the table lacks.
    """
    return _draw(heads, [column], ax)


@styled
def mass_by_layer(
    heads: pd.DataFrame,
    columns: Sequence[str] | None = None,
    *,
    score: str | None = "score_gradient",
    ax: Axes | Sequence[Axes] | None = None,
) -> Figure:
    """Draw the attention to the first token, separators and neighbours by layer (Clark's figure 2).

    Where the table has the column `score`, a second panel shows it by layer: whether that attention matters to the
    task (Clark's figure 3 has the gradient of the attention weight; here it is that of the head's gate). `ax` takes
    one Axes, or two. Raises UsageError for a column that the table lacks.
    """
    heads = require_heads(heads)
    there = [c for c in MASSES if c in heads.columns and heads[c].notna().any()]
    chosen = there if columns is None else list(columns)
    if not chosen:
        raise DataError("The head table has no mass to draw.", f"It may have {', '.join(MASSES)}.")
    with_score = score is not None and score in heads.columns and heads[score].notna().any()
    if ax is None:
        figure = new_figure(ONE_COLUMN, 4.2 if with_score else 2.5)
        axes = list(figure.subplots(2 if with_score else 1, 1, squeeze=False, sharex=True)[:, 0])
    else:
        axes = [ax] if isinstance(ax, Axes) else list(ax)
    figure = _draw(heads, chosen, axes[0])
    if with_score and len(axes) > 1:
        _draw(heads, [str(score)], axes[1])
        axes[0].set_xlabel("")
    return figure


def _draw(heads: pd.DataFrame, columns: Sequence[str], ax: Axes | None) -> Figure:
    heads = require_heads(heads)
    for column in columns:
        if column not in heads.columns:
            raise unknown_name("column", column, map(str, heads.columns))
    axes = new_figure(ONE_COLUMN, 2.5).subplots() if ax is None else ax
    several = heads.index.get_level_values("kind").nunique() > 1
    for i, column in enumerate(columns):
        colour = COLOURS[i % len(COLOURS)]
        for kind, rows in by_kind(heads):
            values = rows[column].astype("Float64").astype(float).dropna()
            layers = values.index.get_level_values("layer")
            name = define(column).title + (f", {kind}" if several else "")
            axes.scatter(layers, values, s=6, color=colour, alpha=0.35, linewidths=0, gid=f"{column} {kind}")
            means = values.groupby(level="layer").mean()
            axes.plot(
                means.index, means, _DASHES.get(kind, "-") if several else "-", color=colour, linewidth=1.4, label=name
            )
    axes.set_xlabel("layer")
    axes.set_ylabel(define(columns[0]).axis if len(columns) == 1 else "mean mass")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    if len(columns) > 1 or several:
        axes.legend(frameon=False, labelspacing=0.3)
    return figure_of(axes)
