"""Gates of which exactly K are open: Gumbel soft top-K with a falling temperature (Li et al. 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headlab.base.errors import UsageError
from headlab.scores.gates.gates import Gates
from headlab.scores.gates.settings import COLD, HOT

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

SHARES = (0.8, 0.6, 0.4, 0.2)  # of the heads that stay, from rung to rung of a ladder
_TINY = torch.finfo(torch.float64).tiny


def soft_top_k(weights: Tensor, k: int, temperature: float) -> Tensor:
    """K soft draws without replacement, summed: (..., heads) that add up to K, one head per draw as it gets cold.

    p_j = softmax(r / t), and r += log(1 - p_j) after each draw. While it is hot a gate may exceed 1.
    """
    r, total = weights, torch.zeros_like(weights)
    for _ in range(k):
        p = torch.softmax(r / temperature, dim=-1)
        total = total + p
        r = r + (1 - p).clamp(min=_TINY).log()
    return total


def top_k(weights: Tensor, k: int) -> Tensor:
    """1 for the K largest, 0 for the others, (..., heads); among equals those that come first, so that K is exact."""
    chosen = torch.sort(weights, dim=-1, descending=True, stable=True).indices[..., :k]
    return torch.zeros_like(weights).scatter(-1, chosen, 1.0)


class ExactKGates(Gates):
    """Exactly `k` open gates; with `straight_through` each step sees hard gates and the gradient of the soft ones."""

    name = "exact_k"
    level_name = "keep"

    def __init__(
        self, n_heads: int, k: float, *, hot: float = HOT, cold: float = COLD, straight_through: bool = False
    ) -> None:
        if not float(k).is_integer():
            raise UsageError(f"{k} heads cannot be kept.", "Give a whole number.")
        if not 1 <= k <= n_heads:
            raise UsageError(f"{k:g} of {n_heads} heads cannot be kept.", f"Keep 1 to {n_heads} heads.")
        if not 0 < cold <= hot:
            raise UsageError(f"Temperatures cannot go from {hot} to {cold}.", "Let them fall, and stay above 0.")
        self.k, self.hot, self.cold, self.straight_through = int(k), hot, cold, straight_through
        self.weights = torch.zeros(n_heads, dtype=torch.float64, requires_grad=True)

    @classmethod
    def default_levels(cls, heads: Heads, task: Task, split: str, free: np.ndarray) -> list[float]:
        """Shares of the heads that have a gate."""
        return [float(max(1, round(share * int(free.sum())))) for share in SHARES]

    def draw(self, shape: tuple[int, ...], share: float, generator: torch.Generator) -> Tensor:
        """Gates of the step at `share` (0 to 1) of the training, `shape` ending in (heads,)."""
        temperature = self.hot * (self.cold / self.hot) ** share
        uniform = torch.rand(shape, dtype=torch.float64, generator=generator).clamp(min=_TINY)
        perturbed = self.weights - (-uniform.log()).clamp(min=_TINY).log()  # Gumbel noise
        soft = soft_top_k(perturbed, self.k, temperature)
        return top_k(perturbed.detach(), self.k) + soft - soft.detach() if self.straight_through else soft

    def resting(self) -> Tensor:
        """Gates without noise, (heads,): exactly K are 1."""
        return top_k(self.weights, self.k)

    def keep(self) -> np.ndarray:
        """Which heads stay, (heads,): always exactly K."""
        return self.resting().detach().numpy() > 0

    def worth(self) -> np.ndarray:
        """The learned weight of every head, (heads,)."""
        return self.weights.detach().numpy().copy()
