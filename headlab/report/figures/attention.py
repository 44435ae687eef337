"""Grid of attention maps, query rows over key columns, with tokens as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter

from headlab.base.errors import DataError, UsageError
from headlab.base.masks import head_names
from headlab.report.colours import ATTENTION
from headlab.report.figures.grid import largest_of_blocks, ticks
from headlab.report.figures.style import TWO_COLUMNS, figure_of, new_figure, plain, styled
from headlab.runs.maps import AttentionMap
from headlab.runs.readable_tokens import readable_tokens

LEAST_FONT = 3.0  # points; below, tokens give way to positions
LONGEST_TOKEN = 12  # characters
MOST_CELLS = 256  # along one side


@styled
def attention_grid(
    maps: Sequence[AttentionMap],
    *,
    columns: int | None = None,
    log: bool = False,
    names: Sequence[str] | None = None,
    ax: Axes | Sequence[Axes] | None = None,
) -> Figure:
    """Draw attention maps side by side on one colour scale, 0 to 1 (or .001 to 1, logarithmic).

    Rows are queries from the top down, columns are keys. Tokens label the outer panels where all maps are of one
    text, else every panel; where they would be too small to read, positions stand instead. `names` are the titles;
    without them, the names of the heads. `ax` takes one Axes for each map. Raises DataError where there is no map.
    """
    if not maps:
        raise DataError("There are no attention maps to draw.", "Store some: headlab dump --maps N.")
    shared = len({(tuple(m.query_tokens), tuple(m.key_tokens)) for m in maps}) == 1
    figure, axes, columns = _axes(maps, columns, ax, shared)
    norm = LogNorm(1e-3, 1.0, clip=True) if log else Normalize(0.0, 1.0)
    titles = names or head_names([(m.kind, m.layer, m.head) for m in maps])
    image: Any = None
    for i, (panel, item, title) in enumerate(zip(axes, maps, titles, strict=True)):
        image = _draw(panel, np.asarray(item.weights, dtype=np.float32), norm)
        panel.set_title(title, pad=3)
        panel.tick_params(length=0, pad=1.5)
        last_in_column = i + columns >= len(maps)
        size = _font_size(figure, columns, item)
        _label(panel.yaxis, item.query_tokens, size, shown=not shared or i % columns == 0)
        _label(panel.xaxis, item.key_tokens, size, shown=not shared or last_in_column)
    bar = figure.colorbar(image, ax=axes, aspect=40, pad=0.01, fraction=0.02)
    bar.set_label("attention weight" + (" (log scale)" if log else ""))
    if log:
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.outline.set_visible(False)  # type: ignore[operator]
    return figure


def _axes(
    maps: Sequence[AttentionMap], columns: int | None, ax: Axes | Sequence[Axes] | None, shared: bool
) -> tuple[Figure, list[Axes], int]:
    if ax is not None:
        given = [ax] if isinstance(ax, Axes) else list(ax)
        if len(given) != len(maps):
            raise UsageError(f"{len(given)} axes were given for {len(maps)} maps.", "Pass one Axes for each map.")
        return figure_of(given[0]), given, columns or len(given)
    longest = max(max(m.weights.shape) for m in maps)
    most = 4 if longest <= 14 else 3 if longest <= 24 else 2
    columns = columns or math.ceil(len(maps) / math.ceil(len(maps) / most))  # rows as equally full as can be
    rows = math.ceil(len(maps) / columns)
    shape = float(np.mean([m.weights.shape[0] / max(m.weights.shape[1], 1) for m in maps]))
    panel = (TWO_COLUMNS - 1.3) / max(columns, 2)
    outer = 0.5 if shared else 0.5 * rows
    figure = new_figure(TWO_COLUMNS, rows * (panel * min(max(shape, 0.3), 2.0) + 0.25) + outer, "compressed")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[len(maps) :]:
        unused.set_axis_off()
    return figure, list(axes[: len(maps)]), columns


def _draw(axes: Axes, weights: np.ndarray, norm: Normalize) -> AxesImage:
    weights, block = largest_of_blocks(weights, MOST_CELLS)
    if block > 1:
        axes.text(
            0.98,
            0.98,
            f"each cell: the largest of {block} × {block} weights",
            fontsize=6,
            color="#555555",
            transform=axes.transAxes,
            ha="right",
            va="top",
        )
    extent = (-0.5, weights.shape[1] * block - 0.5, weights.shape[0] * block - 0.5, -0.5)
    return axes.imshow(weights, norm=norm, cmap=ATTENTION, interpolation="none", extent=extent)


def _font_size(figure: Figure, columns: int, item: AttentionMap) -> float:
    room = (figure.get_size_inches()[0] - 1.1) / max(columns, 2) * 72 / max(item.weights.shape)
    return min(7.0, room * 0.9)


def _label(axis, tokens: Sequence[str], size: float, *, shown: bool) -> None:
    """Tokens along one axis, or positions where there is no room for them."""
    if not shown:
        axis.set_ticks([])
    elif size < LEAST_FONT:
        axis.set_ticks(ticks(len(tokens), 9))
        axis.set_label_text("position")
    else:
        texts = readable_tokens(tokens, LONGEST_TOKEN)
        axis.set_ticks(range(len(tokens)), texts, fontsize=size, rotation=90 if axis.axis_name == "x" else 0)
        plain(axis.get_ticklabels())
