"""Step at which the head goes when, again and again, the head whose removal costs least is removed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headlab.base.masks import HeadId
from headlab.scores.context import ScoreContext
from headlab.scores.measures.losses import Losses
from headlab.scores.score import BY_ABLATION, RemovalScore, Scores


@dataclass(frozen=True)
class GreedyAblation(RemovalScore):
    """Place in the order of removal, (heads,): 1 goes first, the number of heads goes last.

    Every remaining head is left out anew after each removal, so that of two heads that do the same thing one is kept.
    That costs heads * (heads + 1) / 2 evaluations of the split; with `share` (variant `tenths`: 0.1) that share of
    all heads goes at a time and the evaluations are about heads * (1 / share + 1) / 2. A mask whose loss is NaN goes
    last. Equal losses: the first in the index. Raises DataError where the split has no examples.
    """

    name = "greedy_ablation"
    title = "greedy ablation score"
    unit = "place"
    text = "When the head went, with the cheapest head removed at every step; what stays longer counts more."
    definition = "place in the order of removal by mean loss without the head and those that went before"
    source = "backward elimination, as Michel et al. 2019 remove heads one after the other"
    variants = {"tenths": {"share": 0.1}, **BY_ABLATION}
    uses_journal = True

    share: float = 0.0

    def __call__(self, context: ScoreContext) -> Scores:
        losses = Losses(self.within(context))
        left = [HeadId(*head) for head in context.heads.index]
        n_together = max(1, round(self.share * len(left)))
        steps = context.steps(sum(range(len(left), 0, -n_together)), "greedy removal")
        gone: list[HeadId] = []
        while left:
            found = []
            for head in left:
                found.append(losses.without([*gone, head]))
                steps(1, f"{len(gone)} heads removed")
            cheapest = np.argsort(np.nan_to_num(found, nan=np.inf, posinf=np.inf), kind="stable")[:n_together]
            gone += [left[place] for place in cheapest]
            left = [head for place, head in enumerate(left) if place not in cheapest]
        return Scores(np.array([gone.index(HeadId(*head)) + 1 for head in context.heads.index], dtype=float))
