"""What every family of gates is: a distribution of gates with one trainable number per head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task


class Gates(ABC):
    """Gates of `n_heads` heads at one level, made as `Family(n_heads, level)`; UsageError for a level that cannot be.

    A level is what tells one rung of a ladder from another: a price, or how many heads stay.
    """

    name: ClassVar[str]
    level_name: ClassVar[str]  # what a level is called in tables
    weights: Tensor  # (heads,), float64, trainable

    @abstractmethod
    def __init__(self, n_heads: int, level: float) -> None: ...

    @classmethod
    @abstractmethod
    def default_levels(cls, heads: Heads, task: Task, split: str, free: np.ndarray) -> list[float]:
        """Levels worth trying for a model and a task; `free`, (heads,), says which heads have a gate."""

    @classmethod
    def columns(cls, weights: np.ndarray) -> dict[str, np.ndarray]:
        """What a table of gates says of trained weights (heads,) beside the weights themselves."""
        return {}

    @abstractmethod
    def draw(self, shape: tuple[int, ...], share: float, generator: torch.Generator) -> Tensor:
        """Gates of the step at `share` (0 to 1) of the training, `shape` ending in (heads,); differentiable."""

    def cost(self) -> Tensor:
        """What is added to the loss for the gates; nothing where the number of open gates is fixed."""
        return self.weights.new_zeros(())

    @abstractmethod
    def resting(self) -> Tensor:
        """Gates without noise, (heads,)."""

    @abstractmethod
    def keep(self) -> np.ndarray:
        """Which heads stay, (heads,) bool."""

    @abstractmethod
    def worth(self) -> np.ndarray:
        """The importance of every head, (heads,)."""
