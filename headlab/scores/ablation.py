"""Rise of the task's mean loss when the head alone is removed."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.base.errors import UsageError, unknown_name
from headlab.scores.context import ScoreContext
from headlab.scores.measures.leave_one_out import LeftOut, rises_on_all
from headlab.scores.measures.means import mean_and_error
from headlab.scores.measures.searches import WANTED, check_search, race, screen
from headlab.scores.score import BY_ABLATION, RemovalScore, Scores

SEARCHES = {"screen": screen, "race": race}


@dataclass(frozen=True)
class Ablation(RemovalScore):
    """Mean loss without the head minus mean loss with all heads, (heads,), in the units of the task's loss.

    The loss stands for the task's metric, since a metric such as accuracy often does not move for one head. Below 0
    the model is better off without the head. A loss that is NaN without a head stays NaN. Under `mean` and `resample`
    what takes the head's place is taken from the same split. Beside it the standard error of the mean of the paired
    differences over examples.

    `search="screen"` or "race" measures exactly only the heads that may be among the `wanted` (20, or all where there
    are fewer) largest (`end="top"`) or smallest ("bottom") rises; the others get an estimate and a standard error of
    NaN. Raises DataError where the split has no examples (`resample`: fewer than 2; a race: fewer than 32), UsageError
    for what cannot be searched.
    """

    name = "ablation"
    title = "ablation score"
    unit = "loss"
    text = "Rise of the mean task loss when this head alone is removed; higher = more important."
    definition = "mean over examples of L(without the head) - L(all heads)"
    source = "Michel et al. 2019"
    variants = {**BY_ABLATION, "screen": {"search": "screen"}, "race": {"search": "race"}}
    uses_journal = True

    search: str | None = None
    end: str = "top"
    wanted: int | None = None

    def __call__(self, context: ScoreContext) -> Scores:
        context = self.within(context)
        left_out = LeftOut(context)
        heads = list(context.heads.index)
        if self.search is None:
            n_batches = sum(1 for _ in context.batches())
            steps = context.steps(n_batches * len(heads), "one head left out at a time")
            return mean_and_error(rises_on_all(left_out, heads, steps))
        if self.search not in SEARCHES:
            raise unknown_name("search", self.search, SEARCHES)
        sought = min(WANTED, len(heads)) if self.wanted is None else self.wanted
        check_search(self.end, sought, len(heads))
        if self.search == "screen" and context.ablation != "zero":
            raise UsageError(
                f"Gradients predict zero ablation, so they cannot screen for {context.ablation} ablation.",
                "Use ablation:race, which does not rest on the prediction, or zero ablation.",
            )
        return SEARCHES[self.search](left_out, self.end, sought)
