"""Model view: every stored map of one text as a small picture, layers down, heads across."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from headlab.base.errors import DataError
from headlab.report.colours import ATTENTION
from headlab.report.figures.grid import largest_of_blocks, ticks
from headlab.report.figures.style import ONE_COLUMN, TWO_COLUMNS, figure_of, new_figure, styled
from headlab.runs.maps import AttentionMap

PIXELS = 48  # along one side of a small map; longer texts show the largest weight of each block
GAP = 3


@styled
def model_view(
    maps: Sequence[AttentionMap], *, kind: str | None = None, log: bool = False, ax: Axes | None = None
) -> Figure:
    """Draw all maps of one text and one kind of attention in one picture; heads without a map stay empty.

    Without `kind`, that of the first map. Raises DataError where there is no map of it.
    """
    kind = maps[0].kind if kind is None and maps else kind
    shown = [m for m in maps if m.kind == kind]
    shown = [m for m in shown if m.text == shown[0].text]
    if not shown:
        raise DataError("There are no attention maps to draw.", "Store some: headlab dump --maps N.")
    layers, heads = max(m.layer for m in shown) + 1, max(m.head for m in shown) + 1
    longest = max(max(m.weights.shape) for m in shown)
    side = math.ceil(longest / math.ceil(longest / PIXELS))
    step = side + GAP
    canvas = np.full((layers * step - GAP, heads * step - GAP), np.nan)
    for m in shown:
        small, _ = largest_of_blocks(m.weights, side)
        canvas[m.layer * step :, m.head * step :][: small.shape[0], : small.shape[1]] = small
    if ax is None:
        width = ONE_COLUMN if heads <= 8 else TWO_COLUMNS
        ax = new_figure(width, max(1.2, (width - 0.7) * layers / heads + 0.6)).subplots()
    norm = LogNorm(1e-3, 1.0, clip=True) if log else Normalize(0.0, 1.0)
    image = ax.imshow(np.ma.masked_invalid(canvas), norm=norm, cmap=ATTENTION, interpolation="none")
    _label(ax, layers, heads, step, side)
    bar = figure_of(ax).colorbar(image, ax=ax, aspect=40, pad=0.01, fraction=0.02)
    bar.set_label("attention weight" + (" (log scale)" if log else ""))
    return figure_of(ax)


def _label(axes: Axes, layers: int, heads: int, step: int, side: int) -> None:
    across, down = ticks(heads, 16), ticks(layers, 16)
    axes.set_xticks(across * step + side / 2, [str(i) for i in across])
    axes.set_yticks(down * step + side / 2, [str(i) for i in down])
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
