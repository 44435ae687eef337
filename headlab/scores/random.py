"""A random rank for every head: the control that every other score has to beat (Budhraja et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task


def score(heads: Heads, task: Task, *, seed: int = 0, **_: Any) -> np.ndarray:
    """A random permutation of 0 .. heads - 1, (heads,); it depends on the seed and the number of heads alone."""
    return np.random.default_rng(seed).permutation(len(heads.index)).astype(float)
