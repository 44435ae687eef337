"""The hard concrete distribution of gates that can be exactly 0 or 1 (Louizos et al. 2018; Voita et al. 2019)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headlab.base.errors import UsageError
from headlab.base.masks import HeadMask
from headlab.models.state import evaluating
from headlab.scores.gates.gates import Gates
from headlab.tasks.running.batches import batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

BETA, GAMMA, ZETA, EPSILON = 0.33, -0.1, 1.1, 1e-6  # the constants of Voita's code; the paper's text has no temperature
START = 2.0  # log alpha before training: P(open) = .94, since a converged model starts with its heads open
LADDER = (0.25, 0.5, 1.0, 2.0, 4.0)  # penalties, in multiples of the one at which removing every head would just pay

_CLOSED_AT = BETA * math.log(-GAMMA / ZETA)
_FULL_AT = BETA * math.log((1 - GAMMA) / (ZETA - 1))


def p_open(log_alpha: Tensor) -> Tensor:
    """P(gate > 0), of any shape."""
    return torch.sigmoid(log_alpha - _CLOSED_AT)


def p_one(log_alpha: Tensor) -> Tensor:
    """P(gate = 1), of any shape."""
    return torch.sigmoid(log_alpha - _FULL_AT)


def sample(log_alpha: Tensor, uniform: Tensor) -> Tensor:
    """Gates in [0, 1] from uniform draws of the same (or a wider) shape; differentiable in log alpha."""
    u = EPSILON + (1 - 2 * EPSILON) * uniform
    return _stretched(torch.sigmoid((u.log() - (1 - u).log() + log_alpha) / BETA))


def resting(log_alpha: Tensor) -> Tensor:
    """The gate without noise, as Voita's code uses it in tests: fractional where |log alpha| < ln 11 = 2.398."""
    return _stretched(torch.sigmoid(log_alpha))


def _stretched(s: Tensor) -> Tensor:
    return (s * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


class HardConcreteGates(Gates):
    """One gate per head whose expected number of open gates costs `penalty` (lambda) each, in the units of the loss."""

    name = "hard_concrete"
    level_name = "penalty"

    def __init__(self, n_heads: int, penalty: float, start: float = START) -> None:
        if not penalty >= 0 or math.isinf(penalty):
            raise UsageError(f"A penalty of {penalty} for an open gate is out of range.", "Give 0 or more.")
        self.penalty = float(penalty)
        self.weights = torch.full((n_heads,), float(start), dtype=torch.float64, requires_grad=True)

    @classmethod
    def default_levels(cls, heads: Heads, task: Task, split: str, free: np.ndarray) -> list[float]:
        """Multiples of the penalty at which removing every head would just pay."""
        price = break_even(heads, task, split, free)
        return [float(f"{share * price:.3g}") for share in LADDER]  # short numbers, as they name the rungs

    @classmethod
    def columns(cls, weights: np.ndarray) -> dict[str, np.ndarray]:
        """P(open) and P(gate = 1)."""
        log_alpha = torch.tensor(weights)
        return {"p_open": p_open(log_alpha).numpy(), "p_one": p_one(log_alpha).numpy()}

    def draw(self, shape: tuple[int, ...], share: float, generator: torch.Generator) -> Tensor:
        """Gates of one training step, `shape` ending in (heads,)."""
        return sample(self.weights, torch.rand(shape, dtype=torch.float64, generator=generator))

    def cost(self) -> Tensor:
        """L_C times lambda: the expected number of open gates, priced."""
        return self.penalty * p_open(self.weights).sum()

    def resting(self) -> Tensor:
        """Gates without noise, (heads,)."""
        return resting(self.weights)

    def keep(self) -> np.ndarray:
        """Which heads stay, (heads,): those whose gate is rather 1 than 0, which is log alpha > 0 (Voita's paper)."""
        return self.weights.detach().numpy() > 0

    def worth(self) -> np.ndarray:
        """P(open) of every head, (heads,)."""
        return p_open(self.weights.detach()).numpy()


def break_even(heads: Heads, task: Task, split: str = "select", free: np.ndarray | None = None) -> float:
    """The penalty at which removing every head would just pay: rise of the mean loss over the number of heads.

    It brings lambda into the units of the task's loss. 0.01 where the loss does not rise, or is no number.
    """
    free = np.ones(len(heads.index), dtype=bool) if free is None else free
    batches = list(batches_of(task, split))
    nothing = HeadMask.removing([head for head, has in zip(heads.index, free, strict=True) if has], like=heads)
    means = []
    for mask in (HeadMask.full(heads), nothing):
        with torch.no_grad(), evaluating(heads.model), heads.masked(mask):
            means.append(float(torch.cat([task.losses(heads.model, batch).double() for batch in batches]).mean()))
    rise = (means[1] - means[0]) / int(free.sum())
    return rise if np.isfinite(rise) and rise > 0 else 0.01
