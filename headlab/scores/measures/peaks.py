"""The largest attention weight of each word, on one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headlab.attention.observe.block_passes import show_blocks
from headlab.attention.reach.blocks import Block
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.sites import Site

if TYPE_CHECKING:
    from headlab.attention.subject import Subject
    from headlab.base.masks import LayerKey
    from headlab.models.texts.batch import Batch


def word_peaks(subject: Subject, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Sums over word queries of the largest weight on a word, and the number of those queries, each (examples, heads).

    A word is a token that the tokenizer did not add.
    """
    batch = batch.to(subject.device)
    sums: dict[LayerKey, Tensor] = {}
    counts: dict[LayerKey, Tensor] = {}

    def read(site: Site, call: AttentionCall, block: Block) -> None:
        queries, keys = batch.queries(site.kind), batch.keys(site.kind)
        query_words = (queries.valid & ~queries.special)[:, block.start : block.stop]  # (row, query)
        key_words = (keys.valid & ~keys.special)[:, : block.weights.shape[-1]]
        # Blocks may be used again by the model: nothing is written into them.
        peak = torch.where(key_words[:, None, None], block.weights, 0).amax(-1) / block.total  # (row, head, query)
        added = torch.where(query_words[:, None], peak, 0).double().sum(-1)
        sums[site.key] = sums.get(site.key, 0) + added
        counts[site.key] = counts.get(site.key, 0) + query_words.sum(-1, keepdim=True).expand_as(added)

    show_blocks(subject, batch, read)
    order = [site.key for site in subject.sites]
    by_example = (
        batch.sum_by_example(torch.cat([layers[key] for key in order], 1).cpu()).double().numpy()
        for layers in (sums, counts)
    )
    return next(by_example), next(by_example)
