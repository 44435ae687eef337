"""A random rank for every head: the control that every other score has to beat (Budhraja et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headlab.scores.context import ScoreContext
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class Random(Score):
    """A random permutation of 0 .. heads - 1, (heads,); it depends on the seed and the number of heads alone."""

    name = "random"
    title = "random score"
    text = "Random numbers: the control order."
    definition = "a random permutation of 0 .. heads - 1"
    source = "Budhraja et al. 2020"

    def __call__(self, context: ScoreContext) -> Scores:
        return Scores(np.random.default_rng(context.seed).permutation(len(context.heads.index)).astype(float))
