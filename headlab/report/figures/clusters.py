"""Cluster map: heads placed so that those with alike attention are near each other (Clark et al. 2019, figure 6)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headlab.base.errors import DataError
from headlab.base.masks import head_names
from headlab.report.colours import GREY
from headlab.report.facts import define
from headlab.report.figures.labels import carried_labels, legend_keys
from headlab.report.figures.style import ONE_COLUMN, figure_of, new_figure, styled
from headlab.runs.maps import AttentionMap
from headlab.runs.similarity import layout, map_distances
from headlab.runs.tables import label_columns


@styled
def cluster_map(
    maps: Sequence[AttentionMap], heads: pd.DataFrame | None = None, *, seed: int = 0, ax: Axes | None = None
) -> Figure:
    """Draw heads as points in the plane; distances stand for Jensen-Shannon divergences between their attention.

    The divergence of two heads is the mean over all query rows of the stored maps that both have; the plane comes
    from metric multidimensional scaling. With a head table, points take the colour of their main label. The axes
    have no unit. Raises DataError for fewer than three heads.
    """
    distances = map_distances(maps)
    index = distances.index
    if len(index) < 3:
        raise DataError(f"{len(index)} heads have maps on the same texts; three are needed.", "Store more maps.")
    points = layout(distances, seed=seed).to_numpy()
    axes = new_figure(ONE_COLUMN, ONE_COLUMN + 0.5).subplots() if ax is None else ax
    colours = _colours(index, heads)
    for name in dict.fromkeys(label for label, _ in colours):
        own = [i for i, (label, _) in enumerate(colours) if label == name]
        shown = define(name).title if name != "none" else "none"
        axes.scatter(points[own, 0], points[own, 1], s=14, color=colours[own[0]][1], label=shown, gid=name)
    if len(index) <= 40:
        for point, name in zip(points, head_names(index), strict=True):
            axes.annotate(name, point, xytext=(2, 2), textcoords="offset points", fontsize=5)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    if heads is not None:
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, handletextpad=0.1)
    return figure_of(axes)


def _colours(index: pd.MultiIndex, heads: pd.DataFrame | None) -> list[tuple[str, str]]:
    """(main label, colour) of every head."""
    labels = [] if heads is None else label_columns(heads)
    keys = legend_keys(labels)
    found = []
    for head in index:
        known = heads is not None and head in heads.index
        carried = carried_labels(heads.loc[head], labels) if known and labels and heads is not None else None
        found.append((carried[0], keys[carried[0]][1]) if carried else ("none", GREY))
    return found
