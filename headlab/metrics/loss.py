"""Mean of the task's loss over examples: smoother than the main metric, so that single heads show."""

from __future__ import annotations

from headlab.metrics.metric import Metric, ratio

METRIC = Metric(
    name="loss",
    title="loss",
    text="Mean loss per example.",
    columns=("loss", "examples"),
    value=lambda sums: ratio(sums["loss"], sums["examples"]),
    higher_is_better=False,
    unit="nats",
    definition="mean over examples of the task's loss in nats",
    source="cross entropy as the task defines it",
)
