"""Step at which the head goes when the gradient score is estimated anew after every few removals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from headlab.base.masks import HeadId, HeadMask
from headlab.scores.context import ScoreContext
from headlab.scores.measures.gradients import gate_gradients
from headlab.scores.measures.means import mean_over_examples
from headlab.scores.score import Score, Scores

if TYPE_CHECKING:
    from headlab.models.texts.batch import Batch


@dataclass(frozen=True)
class IteratedGradient(Score):
    """Place in the order of removal, (heads,): 1 goes first, the number of heads goes last.

    Before each step I_h = mean over examples of |dL/dg_h| is measured with the removed heads' gates at 0 (zero
    ablation), and the heads with the smallest go: `share` of all heads at a time, at least one, as Michel et al. do
    with exact_pruning; the variant `every-head` takes one at a time. Equal values: the first in the index. A NaN goes
    last. Raises DataError where the split has no examples, UnsupportedModelError where there are no gradients.
    """

    name = "gradient_iterated"
    title = "iterated gradient score"
    unit = "place"
    text = "When the head went, with the gradient estimated again after each removal; what stays longer counts more."
    definition = "place in the order of removal by mean |dL/dg_h|, measured again after every step"
    source = "Michel et al. 2019"
    variants = {"every-head": {"share": 0.0}}
    needs_gradients = True

    share: float = 0.1

    def __call__(self, context: ScoreContext) -> Scores:
        names = [HeadId(*head) for head in context.heads.index]
        step = max(1, round(self.share * len(names)))
        rounds = context.steps(-(-len(names) // step), "no head removed yet")
        rounds(0)
        quiet = replace(context, progress=None)
        gone: list[int] = []
        while len(gone) < len(names):
            at = HeadMask.removing([names[place] for place in gone], like=context.heads)
            found = mean_over_examples(quiet, partial(_sizes, context, at), "gradients")
            order = np.argsort(np.nan_to_num(found.values, nan=np.inf, posinf=np.inf), kind="stable")
            gone += [int(place) for place in order if place not in set(gone)][:step]
            rounds(1, f"{len(gone)} heads removed")
        places = np.empty(len(names))
        places[gone] = np.arange(1, len(names) + 1)
        return Scores(places)


def _sizes(context: ScoreContext, at: HeadMask, batch: Batch) -> np.ndarray:
    return np.abs(gate_gradients(context, batch, at))
