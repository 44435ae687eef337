"""Share of the predicted tokens to which the model gives the highest probability."""

from __future__ import annotations

from headlab.metrics.metric import Metric, ratio

METRIC = Metric(
    name="next_token_accuracy",
    title="next-token accuracy",
    text="Share of tokens that the model ranks first.",
    columns=("hits", "tokens"),
    value=lambda sums: ratio(sums["hits"], sums["tokens"]),
    higher_is_better=True,
    unit="share correct",
    bounds=(0.0, 1.0),
    definition="predicted tokens that are the model's first choice / predicted tokens",
    source="top-1 accuracy of language models, every predicted token weighing the same",
)
