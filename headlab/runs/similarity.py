"""How alike heads are: distances between their attention, a map of them, clusters, and whether layers hold together.

A cluster is no evidence of a linguistic function: heads cluster on random tokens too (Bian et al. 2021).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headlab.base.errors import UsageError
from headlab.runs.maps import AttentionMap
from headlab.runs.tables import HEAD_INDEX


def summed_divergences(attention: Any, entropies: Callable[[Any], np.ndarray]) -> np.ndarray:
    """Jensen-Shannon divergence in nats of every two heads, summed over queries: (heads, heads), symmetric.

    `attention` (head, query, key) is an array or a tensor; `entropies` sums -p ln p over its queries and keys, (head,).
    """
    own = entropies(attention)
    total = np.zeros((len(own), len(own)))
    for head in range(len(own) - 1):
        others = slice(head + 1, None)
        mixed = entropies((attention[others] + attention[head]) / 2)
        total[head, others] = mixed - (own[others] + own[head]) / 2
    return np.maximum(total + total.T, 0)


def map_distances(maps: Sequence[AttentionMap]) -> pd.DataFrame:
    """Jensen-Shannon divergence in nats between every two heads of stored maps, mean over query rows.

    Heads are those that have a map on every text that any head of their kind has; different kinds are compared only
    where their maps have one shape, and the kind with the most heads is taken where they have not.
    """
    from scipy.special import entr

    shapes: dict[tuple, dict] = {}
    for m in maps:
        side = "cross" if m.kind == "cross" else "self"
        shapes.setdefault((side, m.text, m.weights.shape), {})[m.kind, m.layer, m.head] = m.weights
    if not shapes:
        return pd.DataFrame()
    widest = max(shapes.values(), key=len)
    texts = [held for held in shapes.values() if held.keys() == widest.keys()]
    total, rows = np.zeros((len(widest), len(widest))), 0
    for held in texts:
        stack = np.stack([np.asarray(held[head], dtype=np.float64) for head in widest])  # (head, query, key)
        sums = stack.sum(axis=2, keepdims=True)
        stack = np.divide(stack, sums, out=np.zeros_like(stack), where=sums > 0)
        total += summed_divergences(stack, lambda weights: entr(weights).sum(axis=(1, 2)))
        rows += stack.shape[1]
    index = pd.MultiIndex.from_tuples(list(widest), names=HEAD_INDEX)
    return pd.DataFrame(total / rows, index=index, columns=index)


def layout(distances: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Heads in the plane, columns x and y, by metric multidimensional scaling (as Clark et al. 2019: 5 starts)."""
    from sklearn.manifold import MDS

    renamed = "metric_mds" in inspect.signature(MDS).parameters  # since scikit-learn 1.8
    precomputed = {"metric": "precomputed", "init": "random"} if renamed else {"dissimilarity": "precomputed"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # defaults that change between releases
        scaling = MDS(n_components=2, n_init=5, max_iter=1000, random_state=seed, **precomputed)
        points = scaling.fit_transform(distances.to_numpy())
    return pd.DataFrame(points, index=distances.index, columns=["x", "y"])


def clusters(distances: pd.DataFrame, n: int) -> pd.Series:
    """Number of the cluster of each head, 1 .. n, by average linkage."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if not 1 <= n <= len(distances):
        raise UsageError(f"{n} clusters of {len(distances)} heads cannot be.", f"Give 1 to {len(distances)}.")
    tree = linkage(squareform(distances.to_numpy(), checks=False), "average")
    return pd.Series(fcluster(tree, n, "maxclust"), index=distances.index, name="cluster")


def layers_hold_together(distances: pd.DataFrame, *, permutations: int = 2000, seed: int = 0) -> dict[str, float]:
    """Mean distance within layers and between them, and the one-sided p of a permutation of heads over layers.

    p counts the permutations, the given order among them, with a difference (between - within) at least as large.
    """
    layers = distances.index.get_level_values("layer").to_numpy()
    first, second = np.triu_indices(len(layers), 1)
    values = distances.to_numpy()[first, second]
    if len(set(layers)) < 2 or len(set(layers)) == len(layers):
        raise UsageError("Layers can be compared where there are two, one with two heads.", "Give more heads.")

    def difference(order: np.ndarray) -> float:
        same = order[first] == order[second]
        return values[~same].mean() - values[same].mean()

    observed = difference(layers)
    draw = np.random.default_rng(seed)
    beyond = sum(bool(difference(draw.permutation(layers)) >= observed - 1e-12) for _ in range(permutations))
    same = layers[first] == layers[second]
    return {
        "within": float(values[same].mean()),
        "between": float(values[~same].mean()),
        "difference": float(observed),
        "p": (beyond + 1) / (permutations + 1),
    }
    return {
        "within": float(values[same].mean()),
        "between": float(values[~same].mean()),
        "difference": float(observed),
        "p": (beyond + 1) / (permutations + 1),
    }
