"""How gates are trained, and the scores that come of it; nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headlab.base.errors import UsageError, unknown_name
from headlab.scores.score import Score

if TYPE_CHECKING:
    from headlab.scores.context import ScoreContext

STEPS = 200
LEARNING_RATE = 0.1  # of the gates
WEIGHTS_RATE = 2e-5  # of the model's own weights, where they are trained along
TRAIN = ("gates", "all")
HOT, COLD = (
    1.0,
    0.01,
)  # temperatures of exact-k, first and last; the paper's 1,000 to 1e-8 wants 25,000 steps


@dataclass(frozen=True)
class Training:
    """How gates are trained. `train`: "gates" (weights frozen) or "all" (weights too, at `weights_rate`).

    Gates are drawn once for each batch, as in Voita's code, or with `per_example` anew for every example of it, which
    makes the gradient less noisy at the same cost.
    """

    steps: int = STEPS
    learning_rate: float = LEARNING_RATE
    train: str = "gates"
    weights_rate: float = WEIGHTS_RATE
    per_example: bool = False
    seed: int = 0
    split: str = "select"

    def check(self) -> None:
        """Raise UsageError for values that cannot be."""
        require_steps(self.steps)
        if self.train not in TRAIN:
            raise unknown_name("choice of what to train", self.train, TRAIN)
        require_rate("learning_rate", self.learning_rate)
        require_rate("weights_rate", self.weights_rate)


def require_steps(steps: int) -> None:
    """Raise UsageError for a number of steps that trains nothing."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise UsageError(f"{steps} steps of training are out of range.", "Give a whole number of at least 1.")


def require_rate(name: str, rate: float) -> None:
    """Raise UsageError for a learning rate that cannot be."""
    if not 0 < rate < float("inf"):
        raise UsageError(f"A {name} of {rate} is out of range.", "Give a number above 0.")


@dataclass(frozen=True)
class GateScore(Score):
    """A score that trains gates, with the settings of that training."""

    needs_gradients = True

    steps: int = STEPS
    train: str = "gates"
    learning_rate: float = LEARNING_RATE
    weights_rate: float = WEIGHTS_RATE
    per_example: bool = False

    def training(self, context: ScoreContext) -> Training:
        """How the gates are trained on the context's split."""
        return Training(
            self.steps,
            self.learning_rate,
            self.train,
            self.weights_rate,
            self.per_example,
            context.seed,
            context.split,
        )
