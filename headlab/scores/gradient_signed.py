"""Mean of minus the loss gradient at the head's gate: by sign, below 0 for a head that does harm."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.scores.context import ScoreContext
from headlab.scores.measures.gradients import gate_gradients
from headlab.scores.measures.means import mean_over_examples
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class SignedGradient(Score):
    """Mean over examples of -dL/dg_h at g = 1, (heads,), in the units of the task's loss.

    To first order it is the rise of the mean loss when the head is set to zero, where `gradient` has its mean size.
    Beside it the standard error over examples. Raises DataError where the split has no examples,
    UnsupportedModelError where there are no gradients.
    """

    name = "gradient_signed"
    title = "signed gradient score"
    unit = "loss per gate"
    text = "Mean of minus the loss's gradient at the head's gate: below 0 the loss falls as the head goes."
    definition = "mean over examples of -dL/dg_h at g = 1"
    source = "after Michel et al. 2019, without the absolute value"
    needs_gradients = True

    def __call__(self, context: ScoreContext) -> Scores:
        return mean_over_examples(context, lambda batch: -gate_gradients(context, batch), "gradients")
