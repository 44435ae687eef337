"""Translation edit rate (Snover et al. 2006) as sacrebleu computes it, in per cent."""

from __future__ import annotations

import numpy as np

from headlab.metrics.metric import Metric, Sums
from headlab.metrics.overlap import COLUMNS


def _ter(sums: Sums) -> np.ndarray:
    edits, length = (np.asarray(sums[column], dtype=np.float64) for column in COLUMNS["ter"])
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(length > 0, edits / length, np.where(edits > 0, 1.0, 0.0))
    return np.where(np.isnan(edits + length) | (edits + length == 0), np.nan, 100 * rate)


METRIC = Metric(
    name="ter",
    title="TER",
    text="Translation edit rate by sacrebleu.",
    columns=COLUMNS["ter"],
    value=_ter,
    higher_is_better=False,
    unit="per cent",
    definition="sacrebleu's TER: edits (shifts included) / words of the reference, in per cent",
    source="Snover et al. 2006; sacrebleu of Post 2018 (1804.08771)",
)
