"""Share of the outputs that are empty although there was something to say: a warning, not a measure of quality."""

from __future__ import annotations

from headlab.metrics import Metric, ratio

METRIC = Metric(
    name="empty_outputs",
    columns=("empty", "decoded"),
    value=lambda sums: ratio(sums["empty"], sums["decoded"]),
    higher_is_better=False,
    unit="share",
    definition="empty outputs / inputs that are not empty",
)
