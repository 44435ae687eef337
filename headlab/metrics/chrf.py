"""chrF2 (Popović 2015) as sacrebleu computes it, 0 to 100."""

from __future__ import annotations

import numpy as np

from headlab.metrics.metric import Metric, Sums
from headlab.metrics.overlap import COLUMNS

_BETA = 2


def _chrf(sums: Sums) -> np.ndarray:
    """Precision and recall are averaged over the orders that occur on both sides, then combined."""
    stacked = [np.asarray(sums[column], dtype=np.float64) for column in COLUMNS["chrf"]]
    precision, recall, orders = (np.zeros_like(stacked[0]) for _ in range(3))
    with np.errstate(divide="ignore", invalid="ignore"):
        for found, reference, matched in zip(stacked[0::3], stacked[1::3], stacked[2::3], strict=True):
            both = (found > 0) & (reference > 0)
            precision += np.where(both, matched / found, 0.0)
            recall += np.where(both, matched / reference, 0.0)
            orders += both
        precision, recall = (np.where(orders > 0, total / orders, 0.0) for total in (precision, recall))
        score = (1 + _BETA**2) * precision * recall / ((_BETA**2 * precision) + recall)
    score = np.where(precision + recall > 0, 100 * score, 0.0)
    total = sum(stacked)
    return np.where(np.isnan(total) | (total == 0), np.nan, score)  # of nothing there is no score


METRIC = Metric(
    name="chrf",
    title="chrF",
    text="Corpus chrF2 by sacrebleu.",
    columns=COLUMNS["chrf"],
    value=_chrf,
    higher_is_better=True,
    unit="points",
    bounds=(0.0, 100.0),
    definition="sacrebleu's corpus chrF2: character n-grams up to 6, no word n-grams, beta 2",
    source="Popović 2015; sacrebleu of Post 2018 (1804.08771)",
)
