"""Share of the examples that are answered correctly."""

from __future__ import annotations

from headlab.metrics.metric import Metric, ratio

METRIC = Metric(
    name="accuracy",
    title="accuracy",
    text="Share of examples answered correctly.",
    columns=("correct", "examples"),
    value=lambda sums: ratio(sums["correct"], sums["examples"]),
    higher_is_better=True,
    unit="share correct",
    bounds=(0.0, 1.0),
    definition="correct answers / examples; a tie counts one half",
    source="share of right answers, as GLUE (Wang et al. 2018) scores its tasks",
)
