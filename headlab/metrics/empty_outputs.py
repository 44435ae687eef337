"""Share of the outputs that are empty although there was something to say: a warning, not a measure of quality."""

from __future__ import annotations

from headlab.metrics.metric import Metric, ratio

METRIC = Metric(
    name="empty_outputs",
    title="empty outputs",
    text="Share of translations that are empty although their source is not.",
    columns=("empty", "decoded"),
    value=lambda sums: ratio(sums["empty"], sums["decoded"]),
    higher_is_better=False,
    unit="share",
    bounds=(0.0, 1.0),
    definition="empty outputs / inputs that are not empty",
    source="headlab's own warning sign",
)
