"""Relevance of the head's output for the prediction, by layer-wise relevance propagation (Voita et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headlab.scores.context import ScoreContext
from headlab.scores.measures.means import mean_over_examples
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class LayerwiseRelevance(Score):
    """Mean over examples of the relevance that the head's output has for minus the task's loss, (heads,).

    Relevance starts at the model's output as output times slope of minus the loss, or (`top-logit`, Voita's own) as
    the largest logit of every real token, and is passed down by the rules of `relevance_rules`: the paper's
    w u / sum w u through linear layers and sums; softmax, norms and activations are not explained but taken as
    constant factors, as the paper ignores them. So attention weights get no relevance, only what they carry does. By
    default each example's values are divided by the layer's sum of sizes: a share of the layer, -1 to 1 (the
    paper's, where all are positive), which hides that a whole layer may not matter; `raw` keeps the units of the
    start. Beside it the standard error over examples. Raises DataError where the split has no examples,
    UnsupportedModelError where there are no gradients, no single projections, or (`top-logit`) no logits.
    """

    name = "lrp"
    title = "relevance"
    text = "Layer-wise relevance of what the head adds (Voita 2019); higher = more important."
    definition = "mean over examples of sum z_h * dF/dz_h by the rules of relevance, as a share of the layer"
    source = "Voita et al. 2019"
    variants = {"raw": {"share": False}, "top-logit": {"top_logit": True}}
    needs_gradients = True

    share: bool = True
    top_logit: bool = False

    def __call__(self, context: ScoreContext) -> Scores:
        from headlab.scores.measures.relevance import relevance

        context.heads.subject.need_projections("given relevance")
        ends = np.cumsum([site.n_heads for site in context.heads.sites])[:-1]

        def measure(batch):  # type: ignore[no-untyped-def]
            values = relevance(context, batch, top_logit=self.top_logit)
            if not self.share:
                return values
            layers = np.split(values, ends, axis=1)
            sizes = [np.abs(layer).sum(1, keepdims=True) for layer in layers]
            shares = [
                np.divide(layer, size, out=np.zeros_like(layer), where=size > 0)
                for layer, size in zip(layers, sizes, strict=True)
            ]
            return np.concatenate(shares, 1)

        return mean_over_examples(context, measure, "relevance")
