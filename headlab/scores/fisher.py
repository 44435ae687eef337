"""Mean squared loss gradient at the head's gate: the diagonal of the empirical Fisher information of the gates."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.scores.context import ScoreContext
from headlab.scores.measures.gradients import gate_gradients
from headlab.scores.measures.means import mean_over_examples
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class Fisher(Score):
    """Mean over examples of (dL/dg_h)^2 at g = 1, (heads,), in squared units of the task's loss (Kwon et al. 2022).

    Squares are taken per example, never of a batch's sum. Beside it the standard error over examples. Raises
    DataError where the split has no examples, UnsupportedModelError where there are no gradients.
    """

    name = "fisher"
    title = "Fisher score"
    text = "Mean squared gradient of an example's loss at the head's gate; higher = more important."
    definition = "mean over examples of (dL/dg_h)^2 at g = 1"
    source = "Kwon et al. 2022"
    needs_gradients = True

    def __call__(self, context: ScoreContext) -> Scores:
        return mean_over_examples(context, lambda batch: gate_gradients(context, batch) ** 2, "gradients")
