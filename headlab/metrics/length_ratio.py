"""How long the outputs are beside their references: a warning of outputs that stop early or never stop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headlab.metrics import Metric, ratio


@dataclass(frozen=True)
class BestAtOne(Metric):
    """A ratio that is best at 1: its drop is how much farther from 1 it has moved."""

    def drop(self, baseline: np.ndarray | float, value: np.ndarray | float) -> np.ndarray | float:
        return np.abs(np.asarray(value) - 1) - np.abs(np.asarray(baseline) - 1)


METRIC = BestAtOne(
    name="length_ratio",
    columns=("bleu_length", "bleu_reference"),
    value=lambda sums: ratio(sums["bleu_length"], sums["bleu_reference"]),
    higher_is_better=True,
    unit="ratio",
    definition="words of the outputs / words of the references, as BLEU counts them; drop is how much farther from 1",
)
