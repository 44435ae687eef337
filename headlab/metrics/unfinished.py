"""Share of the outputs that the length limit cut off: a warning that decoding no longer ends by itself."""

from __future__ import annotations

from headlab.metrics.metric import Metric, ratio

METRIC = Metric(
    name="unfinished",
    title="unfinished outputs",
    text="Share of translations that the length limit cut off.",
    columns=("unfinished", "decoded"),
    value=lambda sums: ratio(sums["unfinished"], sums["decoded"]),
    higher_is_better=False,
    unit="share",
    bounds=(0.0, 1.0),
    definition="outputs without an end token within the length limit / inputs that are not empty",
    source="headlab's own warning sign",
)
