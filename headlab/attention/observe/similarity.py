"""How alike the heads of a model are on texts, and the random texts to compare with (see headlab.runs.similarity)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch

from headlab.attention.observe.maps import captured
from headlab.attention.subject import HasSubject
from headlab.base.errors import DataError, UsageError
from headlab.models.texts.batch import Batch, Tokens
from headlab.runs.similarity import summed_divergences

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
            smooth = (1 - SMOOTHING) * real.double() + SMOOTHING / real.shape[-1]
            total += summed_divergences(smooth, lambda weights: torch.special.entr(weights).sum((1, 2)).cpu().numpy())
            count += real.shape[1]
    if count == 0:
        raise DataError("There is no text to compare heads on.", "Give at least one text of two tokens.")
    return pd.DataFrame(total / count, index=index, columns=index)


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

    shuffled_batches = []
    for batch in batches:
        source, target = shuffled(batch.source), None if batch.target is None else shuffled(batch.target)
        inputs = dict(batch.inputs) | {"input_ids": source.ids}
        if target is not None:
            inputs["decoder_input_ids"] = target.ids
        shuffled_batches.append(Batch(inputs, source, target, batch.examples, batch.extra))
    return shuffled_batches


def _own(side: Tokens) -> np.ndarray:
    return side.ids[side.valid & ~side.special & ~side.separator].cpu().numpy()
