"""Mean over tokens of the head's largest attention weight, special tokens left aside (Voita et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headlab.attention.change.output_gradients import key_tokens, query_tokens
from headlab.attention.observe.block_passes import show_blocks
from headlab.attention.reach.blocks import Block
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.sites import Site
from headlab.scores.measures.gradients import sum_by_example
from headlab.scores.measures.losses import Mean, batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.models.texts.batch import Batch
    from headlab.scores import Progress
    from headlab.tasks import Task


def score(
    heads: Heads, task: Task, *, split: str = "select", progress: Progress | None = None, **_: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of max_j a_ij over word tokens i, (heads,), 0 to 1; j runs over keys that the tokenizer did not add.

    The paper leaves EOS aside, since it is no word; here every special token ([CLS], [SEP], BOS, EOS) is, as query and
    as key. Weights are not renormalised. It needs no loss, and says nothing about the task but its texts. Beside it
    the standard error over examples. Raises DataError where the split has no examples, UnsupportedModelError where
    attention cannot be seen.
    """
    n_examples, mean, seen = len(task.split(split)), Mean(), 0
    for batch in batches_of(task, split):
        sums, counts = _peaks(heads, batch.to(heads.device))
        mean.add(sum_by_example(sums, batch.examples), sum_by_example(counts, batch.examples))
        seen += len(set(batch.examples))
        if progress:
            progress(seen, n_examples, "attention weights")
    return mean.value, mean.error


def _peaks(heads: Heads, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Sums over word queries of the largest weight, and the number of those queries, each (row, heads)."""
    sums: dict[tuple[str, int], Tensor] = {}
    counts: dict[tuple[str, int], Tensor] = {}

    def read(site: Site, call: AttentionCall, block: Block) -> None:
        queries, keys = query_tokens(batch, site.kind), key_tokens(batch, site.kind)
        words = (queries.valid & ~queries.special)[:, block.start : block.stop]  # (row, query)
        wanted = (keys.valid & ~keys.special)[:, : block.weights.shape[-1]]
        # Blocks may be used again by the model: nothing is written into them.
        peak = torch.where(wanted[:, None, None], block.weights, 0).amax(-1) / block.total  # (row, head, query)
        added = torch.where(words[:, None], peak, 0).double().sum(-1)
        sums[site.key] = sums[site.key] + added if site.key in sums else added
        n = words.sum(-1, keepdim=True).expand_as(added)
        counts[site.key] = counts[site.key] + n if site.key in counts else n

    show_blocks(heads, batch, read)
    order = [site.key for site in heads.sites]
    both = (torch.cat([found[key] for key in order], 1).cpu().numpy() for found in (sums, counts))
    return next(both), next(both).astype(float)
