"""How far translations overlap with their references: sacrebleu's statistics for each sentence, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headlab.base.errors import UsageError, unknown_name

_ORDERS = range(1, 5)
_LETTERS = range(1, 7)
# In the order in which sacrebleu keeps them.
COLUMNS = {
    "bleu": (
        "bleu_length",
        "bleu_reference",
        *(f"bleu_matched_{n}" for n in _ORDERS),
        *(f"bleu_found_{n}" for n in _ORDERS),
    ),
    "chrf": tuple(f"chrf_{what}_{n}" for n in _LETTERS for what in ("found", "reference", "matched")),
    "ter": ("ter_edits", "ter_reference"),
}


class Overlap:
    """sacrebleu's metrics under one choice of case and tokenization.

    `columns` gives sufficient statistics: from their sums over sentences follow the scores that sacrebleu gives to
    the same sentences. Raises UsageError for a tokenizer that sacrebleu does not have or cannot load.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        lowercase: bool = False,
        tokenize: str | None = None,
        language: str = "",
        n_references: int = 1,
    ) -> None:
        from sacrebleu.metrics import BLEU, CHRF, TER

        if tokenize is not None and tokenize not in BLEU.TOKENIZERS:
            raise unknown_name("tokenizer of sacrebleu", tokenize, BLEU.TOKENIZERS)
        makers = {
            "bleu": lambda: BLEU(lowercase=lowercase, tokenize=tokenize, trg_lang=language),
            "chrf": lambda: CHRF(lowercase=lowercase),
            "ter": lambda: TER(),
        }
        try:
            self._metrics: dict[str, Any] = {name: makers[name]() for name in makers if name in names}
        except Exception as error:  # sacrebleu raises RuntimeError, ImportError, SystemExit's kin for missing packages
            raise UsageError(
                f"sacrebleu cannot load the tokenizer for {tokenize or language!r}: {error}.",
                "Name another one with tokenize, such as 13a.",
            ) from error
        for metric in self._metrics.values():
            metric.num_refs = n_references

    def columns(self, translations: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
        """Statistics of each translation, (sentences,) float64; `references` holds one or more for each sentence."""
        streams = [list(stream) for stream in zip(*references, strict=True)]
        found: dict[str, np.ndarray] = {}
        for name, metric in self._metrics.items():
            rows = np.array(metric._extract_corpus_statistics(list(translations), streams), dtype=np.float64)
            found |= dict(zip(COLUMNS[name], rows.T, strict=True))
        return found

    def signatures(self) -> dict[str, str]:
        """The signature that sacrebleu gives of each metric."""
        return {name: str(metric.get_signature()) for name, metric in self._metrics.items()}
