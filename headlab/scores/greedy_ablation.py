"""Step at which the head goes when, again and again, the head whose removal costs least is removed."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.base.masks import HeadId
from headlab.scores.measures.losses import Losses

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task

VARIANTS = {
    "tenths": {"share": 0.1},
    "zero": {"ablation": "zero"},
    "mean": {"ablation": "mean"},
    "resample": {"ablation": "resample"},
    "uniform": {"ablation": "uniform"},
}


def score(
    heads: Heads, task: Task, *, split: str = "select", ablation: str = "zero", seed: int = 0, share: float = 0.0,
    progress: Progress | None = None, journal: MutableMapping[str, list] | None = None, **_: Any,
) -> np.ndarray:  # fmt: skip
    """Place in the order of removal, (heads,): 1 goes first, the number of heads goes last.

    Every remaining head is left out anew after each removal, so that of two heads that do the same thing one is kept.
    That costs heads * (heads + 1) / 2 evaluations of the split; with `share` (variant `tenths`: 0.1) that share of
    all heads goes at a time and the evaluations are about heads * (1 / share + 1) / 2. A mask whose loss is NaN goes
    last. Equal losses: the first in the index. Mean losses that a `journal` (a mapping) holds are
    not computed again. Raises DataError where the split has no examples.
    """
    losses = Losses(heads, task, split, ablation, seed, journal)
    left = [HeadId(*head) for head in heads.index]
    step = max(1, round(share * len(left)))
    steps = sum(range(len(left), 0, -step))
    gone: list[HeadId] = []
    done = 0
    while left:
        found = []
        for head in left:
            found.append(losses.without([*gone, head]))
            done += 1
            if progress:
                progress(done, steps, f"{len(gone)} heads removed")
        cheapest = np.argsort(np.nan_to_num(found, nan=np.inf, posinf=np.inf), kind="stable")[:step]
        gone += [left[place] for place in cheapest]
        left = [head for place, head in enumerate(left) if place not in cheapest]
    return np.array([gone.index(HeadId(*head)) + 1 for head in heads.index], dtype=float)
