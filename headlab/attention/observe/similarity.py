"""How alike heads are: distances between their attention, a map of them, clusters, and whether layers hold together.

A cluster is no evidence of a linguistic function: heads cluster on random tokens too (Bian et al. 2021), which
`random_texts` makes for comparison.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headlab.attention.observe.maps import captured
from headlab.attention.subject import HasSubject
from headlab.base.errors import DataError, UsageError
from headlab.models.texts.batch import Batch, Tokens

SMOOTHING = 0.001


def head_distances(heads: HasSubject, batches: Iterable[Batch], *, kind: str | None = None) -> pd.DataFrame:
    """Mean Jensen-Shannon divergence in nats between the attention of every two heads, over real queries; in 0 .. ln 2.

    Clark et al. 2019 (1906.04341) sum over tokens where this is the mean, which is the same up to scale; rows are
    smoothed as in their code, .999 p + .001 / keys. `kind` chooses one kind of attention, needed where there are
    several: heads with other queries and keys have no distance.
    Takes heads x tokens x tokens for one text at a time.
    """
    subject = heads.subject
    kinds = list(dict.fromkeys(subject.index.get_level_values("kind")))
    if kind is None and len(kinds) > 1:
        raise UsageError(f"The model has attention of the kinds {', '.join(kinds)}.", "Give kind= one of them.")
    chosen = kind or kinds[0]
    if chosen not in kinds:
        raise UsageError(f"The model has no {chosen} attention.", f"It has {', '.join(kinds)}.")
    index = subject.index[subject.index.get_level_values("kind") == chosen]
    total, count = np.zeros((len(index), len(index))), 0
    for batch in batches:
        attention = torch.cat(list(captured(subject, batch, heads=list(index)).values()), 1)
        queries, keys = batch.queries(chosen).valid, batch.keys(chosen).valid
        for row in range(len(batch)):
            real = attention[row][:, queries[row].to(attention.device)][:, :, keys[row].to(attention.device)]
            total += _divergences(real)
            count += real.shape[1]
    if count == 0:
        raise DataError("There is no text to compare heads on.", "Give at least one text of two tokens.")
    return pd.DataFrame(total / count, index=index, columns=index)


def _divergences(attention: Tensor) -> np.ndarray:
    """Sum over queries of the divergence of every two heads; attention (head, query, key)."""
    smooth = (1 - SMOOTHING) * attention.double() + SMOOTHING / attention.shape[-1]
    own = torch.special.entr(smooth).sum((1, 2))
    found = torch.zeros(len(own), len(own), dtype=torch.float64)
    for head in range(len(own) - 1):
        others = slice(head + 1, None)
        mixed = torch.special.entr((smooth[others] + smooth[head]) / 2).sum((1, 2))
        found[head, others] = (mixed - (own[others] + own[head]) / 2).cpu()
    return (found + found.T).clamp_min(0).numpy()


def layout(distances: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Heads in the plane, columns x and y, by metric multidimensional scaling (as Clark et al.: 5 starts)."""
    from sklearn.manifold import MDS

    scaling = _scaling(MDS, seed)
    return pd.DataFrame(scaling.fit_transform(distances.to_numpy()), index=distances.index, columns=["x", "y"])


def _scaling(scaler: type, seed: int):  # type: ignore[no-untyped-def]
    """Scikit-learn 1.8 renamed the option for given distances."""
    import inspect

    renamed = "metric_mds" in inspect.signature(scaler).parameters
    given = {"metric": "precomputed", "init": "random"} if renamed else {"dissimilarity": "precomputed"}
    return scaler(n_components=2, n_init=5, max_iter=1000, random_state=seed, **given)


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


def random_texts(batches: Iterable[Batch], *, vocabulary: int, seed: int = 0) -> list[Batch]:
    """The same batches with every token of a text's own replaced by a random one: the control for structure.

    Special tokens, separators and padding stay. Ids are drawn from those that the batches use, at most `vocabulary`.
    """
    batches = list(batches)
    used = np.unique(np.concatenate([_own(side) for batch in batches for side in batch.sides]))
    used = used[used < vocabulary]
    draw = np.random.default_rng(seed)

    def shuffled(side: Tokens) -> Tokens:
        words = side.valid & ~side.special & ~side.separator
        ids = torch.from_numpy(draw.choice(used, tuple(side.ids.shape))).to(side.ids)
        return Tokens(torch.where(words, ids, side.ids), side.valid, side.special, side.separator)

    found = []
    for batch in batches:
        source, target = shuffled(batch.source), None if batch.target is None else shuffled(batch.target)
        inputs = dict(batch.inputs) | {"input_ids": source.ids}
        if target is not None:
            inputs["decoder_input_ids"] = target.ids
        found.append(Batch(inputs, source, target, batch.examples, batch.extra))
    return found


def _own(side: Tokens) -> np.ndarray:
    return side.ids[side.valid & ~side.special & ~side.separator].cpu().numpy()
