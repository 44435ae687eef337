"""Running sums over texts: means, chance levels and bootstrap replicates in memory that does not grow with them.

The bootstrap over texts is the online one: each text enters each replicate Poisson(1) times, which is what drawing
texts with replacement tends to (Oza and Russell 2001).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.attention.observe.statistics import TextSums

REPLICATES = 200


def poisson_weights(examples: Sequence[int], *, seed: int, replicates: int = REPLICATES) -> np.ndarray:
    """How often each text enters each replicate, (replicate, text); depends on the text's id, not on its batch."""
    draws = [np.random.default_rng([seed, example]).poisson(1.0, replicates) for example in examples]
    return np.array(draws, dtype=np.float64).reshape(len(examples), replicates).T


class RunningSums:
    """Sums of TextSums over texts for one layer; arrays are (head, item) and (item,), in float64.

    `replicated` names the items whose bootstrap replicates are kept.
    """

    def __init__(self, n_heads: int, n_items: int, replicated: Sequence[int] = ()) -> None:
        self.value = np.zeros((n_heads, n_items))
        self.count = np.zeros(n_items)
        self.chance = np.zeros(n_items)
        self.replicated = list(replicated)
        self.replicate_value = np.zeros((REPLICATES, n_heads, len(self.replicated)))
        self.replicate_count = np.zeros((REPLICATES, len(self.replicated)))

    def add(self, sums: TextSums, weights: np.ndarray | None = None, texts: np.ndarray | None = None) -> None:
        """Add the texts of a batch; `weights` (replicate, text) as from poisson_weights, `texts` selects some."""
        value, count, chance = (t.detach().double().cpu().numpy() for t in (sums.value, sums.count, sums.chance))
        chosen = slice(None) if texts is None else texts
        value, count, chance = value[chosen], count[chosen], chance[chosen]
        self.value += value.sum(0)
        self.count += count.sum(0)
        self.chance += chance.sum(0)
        if self.replicated and weights is not None:
            weights = weights[:, chosen]
            self.replicate_value += np.tensordot(weights, value[:, :, self.replicated], axes=(1, 0))
            self.replicate_count += weights @ count[:, self.replicated]

    def merge(self, other: RunningSums) -> None:
        """Add what another process or device has summed over other texts."""
        for name in ("value", "count", "chance", "replicate_value", "replicate_count"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def mean(self) -> np.ndarray:
        """Means (head, item); NaN where nothing counted."""
        return _divide(self.value, self.count)

    def chance_level(self) -> np.ndarray:
        """Mean chance level (item,)."""
        return _divide(self.chance, self.count)

    def replicate_means(self) -> np.ndarray:
        """Bootstrap means (replicate, head, replicated item)."""
        return _divide(self.replicate_value, self.replicate_count[:, None, :])


def _divide(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / np.where(count > 0, count, 1), np.nan)
