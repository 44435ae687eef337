"""BLEU (Papineni et al. 2002) as sacrebleu computes it, 0 to 100."""

from __future__ import annotations

import numpy as np

from headlab.metrics.metric import Metric, Sums
from headlab.metrics.overlap import COLUMNS


def _bleu(sums: Sums) -> np.ndarray:
    """The function of sacrebleu on every set of sums, so that its smoothing and rounding are kept."""
    from sacrebleu.metrics import BLEU

    stacked = np.stack([np.asarray(sums[column], dtype=np.float64) for column in COLUMNS["bleu"]], axis=-1)
    flat = stacked.reshape(-1, stacked.shape[-1])
    scores = np.full(len(flat), np.nan)
    for place in np.flatnonzero(np.isfinite(flat).all(axis=1) & (flat > 0).any(axis=1)):
        length, reference, *counts = flat[place].astype(int).tolist()
        scores[place] = BLEU.compute_bleu(counts[:4], counts[4:], length, reference, smooth_method="exp").score
    return scores.reshape(stacked.shape[:-1])


METRIC = Metric(
    name="bleu",
    title="BLEU",
    text="Corpus BLEU by sacrebleu.",
    columns=COLUMNS["bleu"],
    value=_bleu,
    higher_is_better=True,
    unit="points",
    bounds=(0.0, 100.0),
    definition="corpus BLEU by sacrebleu: n-grams up to 4, exponential smoothing, case and tokenizer by the signature",
    source="Papineni et al. 2002; sacrebleu of Post 2018 (1804.08771)",
)
