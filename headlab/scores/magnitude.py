"""Size of the weights that carry the head's output: no data needed."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.base.errors import UnsupportedModelError
from headlab.scores.context import ScoreContext
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class Magnitude(Score):
    """Frobenius norm of W_O's rows that read the head, (heads,), in units of weights.

    `value_output` takes the norm of W_V W_O of the head instead, which does not change when a factor moves from one
    to the other; query heads that share values share W_V. Texts and task play no part. Raises UnsupportedModelError
    where a layer's projection is not one plain matrix, or where W_V is not found.
    """

    name = "magnitude"
    title = "magnitude"
    text = "Norm of the head's output weights; no data is read; higher = more important."
    definition = "||W_O of the head||, or ||W_V W_O||, Frobenius"
    source = "magnitude pruning of whole heads, headlab's own control without data"
    variants = {"value-output": {"value_output": True}}

    value_output: bool = False

    def __call__(self, context: ScoreContext) -> Scores:
        import numpy as np
        import torch

        from headlab.attention.change.value_weights import value_weights

        heads = context.heads
        if self.value_output and heads.tier not in (1, 2):
            raise UnsupportedModelError(
                "The values of this model are not seen.", "Use magnitude, without :value-output."
            )
        values = value_weights(heads.subject) if self.value_output else {}
        norms = []
        for site in heads.sites:
            weight = site.weight()  # (head, value_dim, model)
            if weight is None:
                raise UnsupportedModelError(
                    f"The output projection of {site.name} is not one plain matrix.",
                    "Use another score with this model, such as ablation.",
                )
            weight = weight.double()
            if self.value_output:
                weight = torch.matmul(values[site.key].to(weight), weight)
            norms.append(torch.linalg.matrix_norm(weight).cpu().numpy())
        return Scores(np.concatenate(norms))
