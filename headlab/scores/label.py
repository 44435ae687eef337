"""Heads with a label go first: minus the label's score, so that the strongest are the least important."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.base.errors import DataError
from headlab.scores.context import ScoreContext
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class LabelScore(Score):
    """-`<label>_score`, (heads,): written `label:induction`. A sweep removes the smallest, so the label's heads first.

    What is asked is "what if the induction heads go?"; the control is random heads from the same layers
    (`matched_random`), not random heads of the model. Heads for which the label is undefined have NaN and go last.
    With a head table that has the column nothing is run; else the split's texts (or the texts that the label
    brings) are observed. Raises UsageError for an unknown label, DataError where no head has a score.
    """

    name = "label"
    title = "label score"
    text = "Minus the label's score, so that a sweep removes the heads with the label first."
    definition = "-(score of the label)"
    source = "headlab's own"
    suffix = "label"
    uses_table = True

    label: str

    def __call__(self, context: ScoreContext) -> Scores:
        column, table = f"{self.label}_score", context.table
        if table is None or column not in table.columns:
            table = context.heads.observe(context.batches(), [self.label], statistics=[], seed=context.seed)
        context.steps(1, f"the label {self.label}")(1)
        values = table[column].reindex(context.heads.index).astype("float64")
        if values.isna().all():
            raise DataError(
                f"The label {self.label} is undefined for every head on these texts.",
                "Give texts that have what it looks for, or take another label.",
            )
        return Scores(-values.to_numpy())
