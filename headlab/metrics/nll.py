"""Mean negative log-probability of the reference's tokens: needs no decoding, and is less noisy than BLEU."""

from __future__ import annotations

from headlab.metrics.metric import Metric, ratio

METRIC = Metric(
    name="nll",
    title="loss per token",
    text="Mean loss per token of the reference translation.",
    columns=("nll", "tokens"),
    value=lambda sums: ratio(sums["nll"], sums["tokens"]),
    higher_is_better=False,
    unit="nats",
    definition="sum of -ln p over the references' tokens, given those before / tokens, every token weighing the same",
    source="token-level cross entropy, as translation models are trained on",
)
