"""How long the outputs are beside their references: a warning of outputs that stop early or never stop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headlab.metrics.metric import Metric, ratio


@dataclass(frozen=True, kw_only=True)
class BestAtOne(Metric):
    """A ratio that is best at 1: its drop is how much farther from 1 it has moved."""

    @property
    def best(self) -> str:
        return "best at 1"

    def drop(self, baseline: np.ndarray | float, value: np.ndarray | float) -> np.ndarray | float:
        return np.abs(np.asarray(value) - 1) - np.abs(np.asarray(baseline) - 1)


METRIC = BestAtOne(
    name="length_ratio",
    title="length ratio",
    text="Length of the translations over that of the references.",
    columns=("bleu_length", "bleu_reference"),
    value=lambda sums: ratio(sums["bleu_length"], sums["bleu_reference"]),
    higher_is_better=True,
    definition="words of the outputs / words of the references, as BLEU counts them; drop is how much farther from 1",
    source="the ratio in BLEU's brevity penalty, Papineni et al. 2002",
)
