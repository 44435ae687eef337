"""Mean norm of what the head adds to the residual stream (compare the average head output norm, arXiv 2504.03889)."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.base.errors import UnsupportedModelError
from headlab.scores.context import ScoreContext
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class OutputNorm(Score):
    """Mean over real tokens of ||z_h W_h||, (heads,), in units of the residual stream: the statistic `output_norm`.

    `layer_normalised` divides by the mean over the heads of the layer, since streams grow with depth. With a head
    table the column is taken from it. It needs no loss. Raises DataError where the split has no examples,
    UnsupportedModelError where a layer's projection is not one plain matrix.
    """

    name = "output_norm"
    title = "output norm score"
    text = "Mean norm of what the head adds; higher = more important."
    definition = "mean over real tokens of ||z_h W_h||"
    source = "arXiv 2504.03889 (average head output norm)"
    variants = {"layer-normalised": {"layer_normalised": True}}
    uses_table = True

    layer_normalised: bool = False

    def __call__(self, context: ScoreContext) -> Scores:
        heads, table = context.heads, context.table
        if table is None or "output_norm" not in table.columns:
            heads.subject.need_gates("weighed")
            steps = context.steps(context.n_examples, "norms of outputs")
            steps(0)
            table = heads.observe(context.batches(), statistics=["output_norm"])
            steps(context.n_examples)
        norms = table["output_norm"].reindex(heads.index)
        if norms.isna().all():
            raise UnsupportedModelError(
                "The output projections are not plain matrices, so that what a head adds is unknown.",
                "Use another score with this model, such as ablation.",
            )
        if self.layer_normalised:
            norms = norms / norms.groupby(level=["kind", "layer"]).transform("mean")
        return Scores(norms.to_numpy(dtype=float))
