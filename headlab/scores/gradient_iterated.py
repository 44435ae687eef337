"""Step at which the head goes when the gradient score is estimated anew after every few removals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.base.masks import HeadId, HeadMask
from headlab.scores.measures.gradients import gate_gradients
from headlab.scores.measures.losses import Mean

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task

VARIANTS = {"every-head": {"share": 0.0}}


def score(
    heads: Heads, task: Task, *, split: str = "select", share: float = 0.1, progress: Progress | None = None, **_: Any
) -> np.ndarray:
    """Place in the order of removal, (heads,): 1 goes first, the number of heads goes last.

    Before each step I_h = mean over examples of |dL/dg_h| is measured with the removed heads' gates at 0 (zero
    ablation), and the heads with the smallest go: `share` of all heads at a time, at least one, as Michel et al. do
    with exact_pruning; the variant `every-head` takes one at a time. Equal values: the first in the index. A NaN goes
    last. Raises DataError where the split has no examples, UnsupportedModelError where there are no gradients.
    """
    names = [HeadId(*head) for head in heads.index]
    step = max(1, round(share * len(names)))
    rounds = -(-len(names) // step)
    gone: list[int] = []
    for done in range(rounds):
        if progress:
            progress(done, rounds, f"{len(gone)} heads removed")
        at = HeadMask.removing([names[place] for place in gone], like=heads)
        mean = Mean()
        for gradients in gate_gradients(heads, task, split, at=at):
            mean.add(np.abs(gradients))
        sizes = np.nan_to_num(mean.value, nan=np.inf, posinf=np.inf)
        order = np.argsort(sizes, kind="stable")
        gone += [int(place) for place in order if place not in set(gone)][:step]
    if progress:
        progress(rounds, rounds, "heads ordered")
    found = np.empty(len(names))
    found[gone] = np.arange(1, len(names) + 1)
    return found
