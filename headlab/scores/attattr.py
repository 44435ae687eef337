"""Largest attribution of a single attention weight, integrated up to full attention (Hao et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.base.errors import UsageError
from headlab.scores.context import ScoreContext
from headlab.scores.measures.means import Mean
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class AttentionAttribution(Score):
    """Mean over examples of max_ij Attr_ij, (heads,), in the units of the task's loss.

    Attr_ij = a_ij times the mean slope of F with respect to a_ij while the attention of the whole layer is scaled
    from 1/`steps` to 1 (a Riemann sum of 20 steps, as in the paper), one layer at a time. F is minus the task's loss
    (the paper: the probability of the right class), so that above 0 speaks for the head. The slope follows from that
    at the head's output: dF/da_ij = dF/dz_i . v_j, so no attention map is kept. It costs `steps` times the number of
    layers forward and backward passes. An example of several rows counts its largest. Beside it the standard error
    over examples. Raises UsageError for steps below 1, DataError where the split has no examples,
    UnsupportedModelError where the head's output is not the plain sum of visible values.
    """

    name = "attattr"
    title = "attention attribution"
    text = (
        "Largest product of a weight and the loss's gradient, integrated from 0 (Hao et al. 2021); "
        "higher = more important."
    )
    definition = "mean over examples of max_ij a_ij * mean over scales of dF/da_ij, F = -L"
    source = "Hao et al. 2021"
    needs_gradients = True

    steps: int = 20

    def __call__(self, context: ScoreContext) -> Scores:
        from headlab.scores.measures.attributions import largest_attributions, mean_slope, require_visible_values

        heads = context.heads
        if self.steps < 1:
            raise UsageError(f"{self.steps} steps are no integral.", "Take at least 1; the paper takes 20.")
        require_visible_values(heads.subject)
        mean, done = Mean(), context.steps(context.n_examples * len(heads.sites), "attributions")
        for batch in context.batches():
            slopes = {}
            for site in heads.sites:
                slopes[site.key] = mean_slope(context, batch, site, self.steps)
                done(len(batch.example_ids), f"{site.kind} layer {site.layer}")
            mean.add(largest_attributions(heads.subject, batch, slopes))
        return mean.scores
