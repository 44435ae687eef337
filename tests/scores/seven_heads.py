"""Seven planted heads in a torch module of one's own, brought in as anybody's module is: by a DeclaredSite.

Useful, a redundant pair, dead, harmful, constant, noise: the formula is small enough to compute every number by hand.
The draws of its 2,000 examples are stored beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from headlab.attention.declared import DeclaredSite
from headlab.attention.heads import Heads
from headlab.models.batch import Batch, Tokens

NAMES = ("useful", "redA", "redB", "dead", "harmful", "const", "noise")
HEADS = {name: ("encoder", 0, place) for place, name in enumerate(NAMES)}
DRAWS = Path(__file__).with_name("seven_draws.csv")


class Mix(nn.Module):
    """What comes after the heads (row, token, 7): one copy of the pair suffices, the constant is counted on."""

    def forward(self, heads: Tensor) -> Tensor:
        useful, red_a, red_b, dead, harmful, const, noise = heads[:, 0].unbind(-1)
        return useful + dead + harmful + noise + 3 * torch.tanh(2 * (red_a + red_b)) + (const - 3)


class SevenHeads(nn.Module):
    """The logit of class +1 from seven head outputs side by side, one token per text."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = Mix()

    def forward(self, sign: Tensor, noise: Tensor) -> Tensor:
        one = torch.ones_like(sign)
        columns = [2.5 * sign, sign, sign, 0 * one, -0.8 * sign, 3.0 * one, 0.3 * noise]
        return self.mix(torch.stack(columns, -1)[:, None])


class SevenTask:
    """Sign of the logit: loss ln(1 + exp(-margin)), in nats."""

    name, metrics = "seven", ("accuracy", "loss")

    def __init__(self, model: SevenHeads, *, n: int = 2000, batch_size: int = 500) -> None:
        self.model, self.n, self.batch_size = model, n, batch_size
        table = np.loadtxt(DRAWS, delimiter=",", skiprows=1)[:n]
        self.sign, self.noise = torch.tensor(table[:, 0]), torch.tensor(table[:, 1])

    def split(self, name: str) -> np.ndarray:
        return {"all": np.arange(self.n), "select": np.arange(0, self.n, 2), "report": np.arange(1, self.n, 2)}[name]

    def batches(self, split: str = "all") -> Iterator[Batch]:
        chosen = self.split(split)
        for start in range(0, len(chosen), self.batch_size):
            yield self.batch(chosen[start : start + self.batch_size])

    def batch(self, ids: Sequence[int]) -> Batch:
        ids = np.asarray(ids)
        yes = torch.ones(len(ids), 1, dtype=torch.bool)
        tokens = Tokens(torch.arange(len(ids))[:, None], yes, ~yes, ~yes)
        return Batch({"sign": self.sign[ids], "noise": self.noise[ids]}, tokens, examples=tuple(ids.tolist()))

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return functional.softplus(-model(**batch.inputs) * batch.inputs["sign"])

    def signature(self) -> dict:
        return {"task": self.name, "n": self.n}


def seven(**options: int) -> tuple[Heads, SevenTask]:
    """The seven heads and their task, on one model."""
    model = SevenHeads()
    task = SevenTask(model, **options)
    site = DeclaredSite("encoder", 0, n_heads=7, projection="mix")
    return Heads(model, [site], example=task.batch([0, 1, 2])), task
