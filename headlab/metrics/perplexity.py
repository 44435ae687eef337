"""Exponential of the mean negative log-probability per predicted token, every token weighing the same."""

from __future__ import annotations

import numpy as np

from headlab.metrics.metric import Metric, Sums, ratio


def _perplexity(sums: Sums) -> np.ndarray:
    with np.errstate(over="ignore"):  # a broken model is infinitely perplexed; that is a value, not a warning
        return np.exp(ratio(sums["nll"], sums["tokens"]))


METRIC = Metric(
    name="perplexity",
    title="perplexity",
    text="Exponential of the mean loss per token.",
    columns=("nll", "tokens"),
    value=_perplexity,
    higher_is_better=False,
    definition="exp(sum of -ln p over predicted tokens / predicted tokens), weighted by token",
    source="Jelinek et al. 1977, with the natural exponential and every token weighing the same",
)
