"""Learned weight of the head where exactly K heads may stay (differentiable subset pruning, Li et al. 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.scores.gates.exact_k import COLD, HOT, ExactKGates
from headlab.scores.gates.training import STEPS, WEIGHTS_RATE, Training, trained_gates

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task


def score(
    heads: Heads, task: Task, *, split: str = "select", seed: int = 0, steps: int = STEPS, keep: int | None = None,
    train: str = "gates", learning_rate: float = 0.1, weights_rate: float = WEIGHTS_RATE, per_example: bool = False,
    hot: float = HOT, cold: float = COLD, straight_through: bool = False, progress: Progress | None = None, **_: Any,
) -> np.ndarray:  # fmt: skip
    """Weights after training, (heads,), without unit: the `keep` largest are the subset that was learned.

    Without `keep` half of the heads stay. Gates are drawn by Gumbel soft top-K whose temperature falls from `hot` to
    `cold`; with `straight_through` each step sees hard gates. `train="all"` trains the model's weights along and puts
    them back. A closed gate is 0, so this is about zero ablation. Raises DataError where the split has no examples,
    UsageError for a `keep` that the model cannot have.
    """
    n = len(heads.index)
    gates = ExactKGates(n, max(1, n // 2) if keep is None else keep, hot=hot, cold=cold,
                        straight_through=straight_through)  # fmt: skip
    how = Training(steps, learning_rate, train, weights_rate, per_example, seed, split)
    with trained_gates(heads, task, gates, np.ones(n, dtype=bool), how, progress) as learned:
        return learned.worth
