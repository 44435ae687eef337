"""Cluster map: heads placed so that those with alike attention are near each other (Clark et al. 2019, figure 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import xlogy

from headlab.base.errors import DataError
from headlab.base.masks import head_names
from headlab.report.definitions import define
from headlab.report.figures.labels import carried_labels, legend_keys
from headlab.report.figures.style import GREY, ONE_COLUMN, figure_of, new_figure, styled
from headlab.runs.maps import AttentionMap
from headlab.runs.tables import HEAD_INDEX, label_columns


@styled
def cluster_map(
    maps: Sequence[AttentionMap], heads: pd.DataFrame | None = None, *, seed: int = 0, ax: Axes | None = None
) -> Figure:
    """Draw heads as points in the plane; distances stand for Jensen-Shannon divergences between their attention.

    The divergence of two heads is the mean over all query rows of the stored maps that both have; the plane comes
    from metric multidimensional scaling. With a head table, points take the colour of their main label. The axes
    have no unit. Raises DataError for fewer than three heads.
    """
    index, divergence = divergences(maps)
    if len(index) < 3:
        raise DataError(f"{len(index)} heads have maps on the same texts; three are needed.", "Store more maps.")
    points = scaled(divergence, seed)
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


def divergences(maps: Sequence[AttentionMap]) -> tuple[pd.MultiIndex, np.ndarray]:
    """Jensen-Shannon divergence in nats between every two heads, mean over query rows: (heads, heads), symmetric.

    Heads are those that have a map on every text that any head of their kind has; different kinds are compared only
    where their maps have one shape, and the kind with the most heads is taken where they have not.
    """
    shapes: dict[tuple, dict] = {}
    for m in maps:
        side = "cross" if m.kind == "cross" else "self"
        shapes.setdefault((side, m.text, m.weights.shape), {})[m.kind, m.layer, m.head] = m.weights
    if not shapes:
        return pd.MultiIndex.from_arrays([[], [], []], names=HEAD_INDEX), np.zeros((0, 0))
    widest = max(shapes.values(), key=len)
    texts = [held for held in shapes.values() if held.keys() == widest.keys()]
    total, rows = np.zeros((len(widest), len(widest))), 0
    for held in texts:
        stack = np.stack([np.asarray(held[head], dtype=np.float64) for head in widest])  # (head, query, key)
        sums = stack.sum(axis=2, keepdims=True)
        stack = np.divide(stack, sums, out=np.zeros_like(stack), where=sums > 0)
        total += _summed_divergence(stack)
        rows += stack.shape[1]
    return pd.MultiIndex.from_tuples(list(widest), names=HEAD_INDEX), total / rows


def _summed_divergence(stack: np.ndarray) -> np.ndarray:
    entropy = -xlogy(stack, stack).sum(axis=2)  # (head, query)
    found = np.zeros((len(stack), len(stack)))
    for i, weights in enumerate(stack[:-1]):
        middle = (weights + stack[i + 1 :]) / 2
        joint = -xlogy(middle, middle).sum(axis=2)
        found[i, i + 1 :] = (joint - (entropy[i] + entropy[i + 1 :]) / 2).sum(axis=1)
    return np.maximum(found + found.T, 0)


def scaled(divergence: np.ndarray, seed: int = 0) -> np.ndarray:
    """Points in the plane (heads, 2) whose distances are as near to the divergences as can be."""
    import warnings

    from sklearn.manifold import MDS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # defaults and names that change between releases
        scaling = MDS(n_components=2, dissimilarity="precomputed", random_state=seed, n_init=4, normalized_stress=False)
        return scaling.fit_transform(divergence)


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
