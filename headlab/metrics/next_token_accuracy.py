"""Share of the predicted tokens to which the model gives the highest probability."""

from __future__ import annotations

from headlab.metrics import Metric, ratio

METRIC = Metric(
    name="next_token_accuracy",
    columns=("hits", "tokens"),
    value=lambda sums: ratio(sums["hits"], sums["tokens"]),
    higher_is_better=True,
    unit="share",
    definition="predicted tokens that are the model's first choice / predicted tokens",
)
