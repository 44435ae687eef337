"""Share of the examples that are answered correctly."""

from __future__ import annotations

from headlab.metrics import Metric, ratio

METRIC = Metric(
    name="accuracy",
    columns=("correct", "examples"),
    value=lambda sums: ratio(sums["correct"], sums["examples"]),
    higher_is_better=True,
    unit="share",
    definition="correct answers / examples; a tie counts one half",
)
