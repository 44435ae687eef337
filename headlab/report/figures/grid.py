"""Layer x head panels, one for each kind of attention, that heat maps and label maps are drawn on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headlab.base.errors import DataError, UsageError
from headlab.base.masks import KINDS
from headlab.report.colours import PALE
from headlab.report.figures.style import ONE_COLUMN, TWO_COLUMNS, figure_of, new_figure
from headlab.runs.tables import HEAD_INDEX


def require_heads(heads: pd.DataFrame) -> pd.DataFrame:
    """A head table indexed by (kind, layer, head), whether they came as index or as columns; DataError without rows."""
    if list(heads.index.names) != list(HEAD_INDEX):
        missing = [name for name in HEAD_INDEX if name not in heads.columns]
        if missing:
            raise DataError(f"The head table lacks {', '.join(missing)}.", "It is indexed by kind, layer and head.")
        heads = heads.set_index(list(HEAD_INDEX))
    if heads.empty:
        raise DataError("The head table has no rows.", "Observe at least one head.")
    return heads


def by_kind(heads: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(kind, its rows indexed by (layer, head)) in the order encoder, decoder, cross, then anything else."""
    there = list(dict.fromkeys(heads.index.get_level_values("kind")))
    for kind in [k for k in KINDS if k in there] + [k for k in there if k not in KINDS]:
        yield kind, heads.xs(kind, level="kind")


def as_matrix(values: pd.Series) -> np.ma.MaskedArray:
    """(layers, heads) matrix of a series indexed by (layer, head), from layer and head 0 on; masked where undefined."""
    layers, head_numbers = (values.index.get_level_values(name).to_numpy() for name in ("layer", "head"))
    matrix = np.full((layers.max() + 1, head_numbers.max() + 1), np.nan)
    matrix[layers, head_numbers] = values.to_numpy(dtype=float, na_value=np.nan)
    return np.ma.masked_invalid(matrix)


def panels(heads: pd.DataFrame, ax: Axes | Sequence[Axes] | None, extra: float) -> tuple[Figure, list[Axes]]:
    """One Axes for each kind, side by side or, of unlike depth, stacked; `extra` inches are for the legend below."""
    sizes = [
        (rows.index.get_level_values("layer").max() + 1, rows.index.get_level_values("head").max() + 1)
        for _, rows in by_kind(heads)
    ]
    if ax is not None:
        given = [ax] if isinstance(ax, Axes) else list(ax)
        if len(given) != len(sizes):
            raise UsageError(
                f"{len(given)} axes were given for {len(sizes)} kinds of attention.",
                "Pass one Axes for each kind, or none.",
            )
        return figure_of(given[0]), given
    depths, widths = zip(*sizes, strict=True)
    stacked = len(set(depths)) > 1  # side by side, cells of different depth would differ in height
    across = max(widths) if stacked else sum(widths)
    width = ONE_COLUMN if across <= 18 else TWO_COLUMNS
    cell = float(np.clip(width / (across + 3), 0.12, 0.26 if max(depths) <= 14 else 0.16))
    if stacked:
        figure = new_figure(width, sum(depths) * cell + 0.6 * (len(depths) - 1) + 0.2 + extra)
        return figure, list(figure.subplots(len(sizes), 1, height_ratios=depths))
    figure = new_figure(width, max(depths) * cell + 0.2 * (len(sizes) > 1) + extra)
    return figure, list(figure.subplots(1, len(sizes), squeeze=False, width_ratios=[max(w, 4) for w in widths])[0])


def finish(axes: Axes, kind: str, rows: pd.DataFrame, title: bool) -> None:
    """Layers from the top down, head numbers below, hatching for heads whose value is undefined."""
    n_layers = rows.index.get_level_values("layer").max() + 1
    n_heads = rows.index.get_level_values("head").max() + 1
    axes.set_xlim(-0.5, n_heads - 0.5)
    axes.set_ylim(n_layers - 0.5, -0.5)
    axes.set_xticks(ticks(n_heads, 12))
    axes.set_yticks(ticks(n_layers, 16))
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(f"{kind}-attention" if kind == "cross" else kind)


def ticks(count: int, most: int) -> np.ndarray:
    """At most `most` numbers from 0 on, in steps that people count in."""
    step = next(s for s in (1, 2, 4, 5, 10, 20, 50, 100, 200, 500, count) if count / s <= most)
    return np.arange(0, count, step)


def largest_of_blocks(weights: np.ndarray, side: int) -> tuple[np.ndarray, int]:
    """A map of at most `side` rows and columns, each cell the largest of block x block weights, and that block.

    Thin lines of a long text would fade away in a mean.
    """
    block = math.ceil(max(weights.shape) / side)
    if block == 1:
        return weights, 1
    padded = np.pad(weights, ((0, -weights.shape[0] % block), (0, -weights.shape[1] % block)))
    return padded.reshape(padded.shape[0] // block, block, -1, block).max(axis=(1, 3)), block


def hatch(axes: Axes, layer: int, head: int) -> None:
    """Mark a head whose value is undefined, so that it differs from a low value and from no head."""
    axes.add_patch(
        Rectangle(
            (head - 0.5, layer - 0.5),
            1,
            1,
            facecolor=PALE,
            edgecolor="#B0B0B0",
            hatch="////",
            linewidth=0,
            gid="undefined",
        )
    )


def write_in_cell(axes: Axes, layer: int, head: int, text: str, *, size: float, colour: str) -> None:
    """A few letters in the middle of a cell."""
    written = axes.text(head, layer, text, ha="center", va="center", fontsize=size, color=colour)
    written.set_in_layout(False)  # it cannot stick out, and measuring hundreds of them takes most of the time


def cell_width(axes: Axes, n_heads: int) -> float:
    """Rough width of a cell in inches."""
    return figure_of(axes).get_size_inches()[0] * axes.get_position().width / n_heads
