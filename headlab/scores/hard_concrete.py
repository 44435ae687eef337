"""Probability that the head's learned gate is open, when open gates cost a penalty (Voita et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.scores.gates.hard_concrete import HardConcreteGates
from headlab.scores.gates.training import (
    LEARNING_RATE,
    STEPS,
    WEIGHTS_RATE,
    Training,
    break_even,
    trained_gates,
    warn_if_closed,
)

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task


def score(
    heads: Heads, task: Task, *, split: str = "select", seed: int = 0, steps: int = STEPS,
    penalty: float | None = None, train: str = "gates", learning_rate: float = LEARNING_RATE,
    weights_rate: float = WEIGHTS_RATE, per_example: bool = False, progress: Progress | None = None, **_: Any,
) -> np.ndarray:  # fmt: skip
    """P(open) of every gate after training, (heads,), 0 to 1.

    The loss is the task's mean loss plus `penalty` times the expected number of open gates (constants of Voita's
    code). Without `penalty` it is the one at which removing every head would just pay (the rise of the loss over the
    number of heads). `train="all"` trains the model's weights along and puts them back. A closed gate is 0, so this
    is about zero ablation. One penalty gives one trade-off: `headlab.pruning.ladder` climbs through several. Where
    every gate closes, a warning says so. Raises DataError where the split has no examples.
    """
    how = Training(steps, learning_rate, train, weights_rate, per_example, seed, split)
    how.check()
    price = break_even(heads, task, split) if penalty is None else penalty
    free = np.ones(len(heads.index), dtype=bool)
    with trained_gates(heads, task, HardConcreteGates(len(free), price), free, how, progress) as learned:
        warn_if_closed(learned, f"Take a penalty below {price:.3g}.")
        return learned.worth
