"""Heat map of any column of a head table over layer x head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from headlab.base.errors import DataError, unknown_name
from headlab.report.colours import DIVERGING, SEQUENTIAL
from headlab.report.facts import define
from headlab.report.figures.grid import (
    as_matrix,
    by_kind,
    cell_width,
    finish,
    hatch,
    panels,
    require_heads,
    write_in_cell,
)
from headlab.report.figures.style import is_dark, styled


@styled
def heat_map(heads: pd.DataFrame, column: str, *, ax: Axes | Sequence[Axes] | None = None, log: bool = False) -> Figure:
    """Draw one column of a head table over layer x head, one panel for each kind of attention.

    Colour runs from 0 (or the least value) to the greatest; a column with values on both sides of 0 has its neutral
    colour at 0. Undefined values are hatched. `log` is for columns above 0. `ax` takes one Axes for each kind.
    Raises UsageError for an unknown column, DataError for one without numbers.
    """
    heads = require_heads(heads)
    if column not in heads.columns:
        raise unknown_name("column", column, map(str, heads.columns))
    values = _numbers(heads, column)
    figure, axes = panels(heads, ax, extra=0.95)
    norm, colours = _scale(values, log)
    image: Any = None
    for panel, (kind, rows) in zip(axes, by_kind(heads[[column]].assign(**{column: values})), strict=True):
        matrix = as_matrix(rows[column])
        image = panel.imshow(matrix, norm=norm, cmap=colours, aspect="auto", interpolation="none")
        for layer, head in rows.index[rows[column].isna()]:
            hatch(panel, layer, head)
        finish(panel, kind, rows, title=len(axes) > 1)
        if not _is_boolean(heads[column]) and values.abs().max() >= 0.095:  # smaller ones would all read 0
            _write_values(panel, matrix, image)
    bar = figure.colorbar(image, ax=axes, orientation="horizontal", aspect=30, pad=0.02, fraction=0.06)
    if _is_boolean(heads[column]):
        bar.set_ticks([0, 1], labels=["no", "yes"])
    elif log:
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.set_label(define(column).axis)
    bar.outline.set_visible(False)  # type: ignore[operator]
    return figure


def _is_boolean(values: pd.Series) -> bool:
    return str(values.dtype) in {"bool", "boolean"}


def _numbers(heads: pd.DataFrame, column: str) -> pd.Series:
    try:
        values = heads[column].astype("Float64").astype(float)
    except (TypeError, ValueError) as error:
        raise DataError(f"The column {column!r} holds no numbers.", "label_map draws labels.") from error
    return values.where(np.isfinite(values))


def _scale(values: pd.Series, log: bool) -> tuple[Normalize, str]:
    """Colour scale: sequential from 0, diverging where there are values on both sides of 0, or logarithmic."""
    low, high = (0.0, 1.0) if values.isna().all() else (float(values.min()), float(values.max()))
    if log and high > 0:
        return LogNorm(vmin=float(values[values > 0].min()), vmax=high), SEQUENTIAL
    if low < 0:
        reach = max(-low, high, 1e-12)
        return TwoSlopeNorm(0.0, -reach, reach), DIVERGING
    if high > 0 and low > 0.6 * high:
        return Normalize(low, high), SEQUENTIAL  # all much alike: from 0 on, nothing could be told apart
    return Normalize(0.0, high or 1.0), SEQUENTIAL


def _write_values(axes: Axes, matrix: np.ma.MaskedArray, image) -> None:
    """Numbers in the cells, where they fit."""
    if cell_width(axes, matrix.shape[1]) < 0.17 or matrix.shape[0] > 14:
        return
    for (layer, head), value in np.ndenumerate(matrix.filled(np.nan)):
        if np.isfinite(value):
            dark = is_dark(image.cmap(image.norm(value)))
            write_in_cell(axes, layer, head, short_number(value), size=5, colour="white" if dark else "black")


def short_number(value: float) -> str:
    """Two digits, no leading zero: .86, 1.0, 12, -.03."""
    if abs(value) >= 9.95:
        return f"{value:.0f}"
    if abs(value) >= 0.995:
        return f"{value:.1f}"
    text = f"{value:.2f}".replace("0.", ".", 1)
    return "0" if text in {".00", "-.00"} else text
