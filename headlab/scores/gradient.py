"""Mean size of the loss gradient at the head's gate (Michel et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headlab.scores.context import ScoreContext
from headlab.scores.measures.gradients import gate_gradients, token_gradients
from headlab.scores.measures.means import mean_over_examples
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class Gradient(Score):
    """I_h = mean over examples of |dL/dg_h| at g = 1, (heads,), in the units of the task's loss.

    The absolute value is taken per example, as in the paper's formula; `per_token` takes it per token and averages
    over real tokens, as in the authors' code: contributions of opposite sign within a text then do not cancel.
    `layer_normalised` divides by the l2 norm over the heads of a layer, as they do; the values are raw otherwise.

    The gate scales the head's whole contribution, so this is the first-order effect of zero ablation, whatever
    ablation the heads are later removed with. A large value may also mean a harmful head: the sign is not seen
    (`gradient_signed` does). Beside it the standard error over examples (under `layer_normalised` with the norm taken
    as known). Raises DataError where the split has no examples, UnsupportedModelError where there are no gradients.
    """

    name = "gradient"
    title = "gradient score"
    unit = "loss per gate"
    text = (
        "Mean absolute gradient of an example's loss with respect to the head's gate (Michel et al. 2019); "
        "higher = more important."
    )
    definition = "mean over examples of |dL/dg_h| at g = 1"
    source = "Michel et al. 2019"
    variants = {"per-token": {"per_token": True}, "layer-normalised": {"layer_normalised": True}}
    needs_gradients = True

    per_token: bool = False
    layer_normalised: bool = False

    def __call__(self, context: ScoreContext) -> Scores:
        if self.per_token:
            context.heads.subject.need_projections("given gradients token by token")
            found = mean_over_examples(context, lambda batch: token_gradients(context, batch), "gradients")
        else:
            found = mean_over_examples(context, lambda batch: np.abs(gate_gradients(context, batch)), "gradients")
        if not self.layer_normalised:
            return found
        import pandas as pd

        squares = pd.Series(found.values**2, index=context.heads.index)
        norms = np.sqrt(squares.groupby(level=["kind", "layer"]).transform("sum").to_numpy())
        norms = np.where(norms > 0, norms, 1.0)
        return Scores(found.values / norms, found.errors / norms)
