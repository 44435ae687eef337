"""Seven heads whose worth is known: useful, a redundant pair, dead, harmful, constant, noise.

The model is a torch module of one's own, small enough to compute every number by hand, brought in as anybody's module
is: by a DeclaredSite for each of its two layers. The draws of its 2,000 examples are stored beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from headlab.attention.heads import Heads
from headlab.attention.prove.declared import DeclaredSite
from headlab.models.texts.batch import Batch, Tokens

NAMES = ("useful", "redA", "redB", "dead", "harmful", "const", "noise")
HEADS = {name: ("encoder", *((0, i) if i < 4 else (1, i - 4))) for i, name in enumerate(NAMES)}
N = 2000
DRAWS = Path(__file__).with_name("seven_draws.csv")


class First(nn.Module):
    """What comes after the first four heads, (row, token, 4): one copy of the pair suffices."""

    def forward(self, heads: Tensor) -> Tensor:
        useful, red_a, red_b, dead = heads[:, 0].unbind(-1)
        return useful + dead + 3 * torch.tanh(2 * (red_a + red_b))


class Second(nn.Module):
    """What comes after the other three, (row, token, 3): the rest was trained against the constant."""

    def forward(self, heads: Tensor) -> Tensor:
        return heads[:, 0].sum(-1) - 3


class SevenHeads(nn.Module):
    """The logit of class +1 from seven head outputs, one token per text."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = First(), Second()

    def forward(self, sign: Tensor, noise: Tensor) -> Tensor:
        one = torch.ones_like(sign)
        first = torch.stack([2.5 * sign, sign, sign, 0 * one], -1)
        second = torch.stack([-0.8 * sign, 3.0 * one, 0.3 * noise], -1)
        return self.first(first[:, None]) + self.second(second[:, None])


@dataclass
class PlantedEvaluation:
    examples: pd.DataFrame


class PlantedTask:
    """What scores and sweeps ask of a Task: a two-class decision, its accuracy and its loss, in nats."""

    name = "planted"
    metrics: tuple[str, ...] = ("accuracy", "loss")

    def __init__(self, model: nn.Module, *, batch_size: int = 500, n: int = N) -> None:
        self.model, self.n, self.batch_size = model, n, batch_size
        table = np.loadtxt(DRAWS, delimiter=",", skiprows=1)[:n]
        self.sign, self.noise = torch.tensor(table[:, 0]), torch.tensor(table[:, 1])
        self.evaluations = 0

    def split(self, name: str) -> np.ndarray:
        return {"all": np.arange(self.n), "select": np.arange(0, self.n, 2), "report": np.arange(1, self.n, 2)}[name]

    def batches(self, split: str = "all") -> Iterator[Batch]:
        chosen = self.split(split)
        for start in range(0, len(chosen), self.batch_size):
            yield self.batch(chosen[start : start + self.batch_size])

    def batch(self, ids: Sequence[int] | np.ndarray) -> Batch:
        ids = np.asarray(ids)
        yes = torch.ones(len(ids), 1, dtype=torch.bool)
        tokens = Tokens(torch.arange(len(ids))[:, None], yes, ~yes, ~yes)
        return Batch({"sign": self.sign[ids], "noise": self.noise[ids]}, tokens, examples=tuple(ids.tolist()))

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return functional.softplus(-model(**batch.inputs) * batch.inputs["sign"])

    def evaluate(self, split: str = "all", progress=None) -> PlantedEvaluation:
        self.evaluations += 1
        rows = []
        with torch.no_grad():
            for batch in self.batches(split):
                margin = self.model(**batch.inputs) * batch.inputs["sign"]
                columns = {"correct": (margin > 0).double(), "examples": 1.0, "loss": functional.softplus(-margin)}
                rows.append(pd.DataFrame(columns, index=batch.examples))
        return PlantedEvaluation(pd.concat(rows))

    def keeping(self, folder, key) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def signature(self) -> dict:
        return {"task": self.name, "n": self.n}


def planted(**options) -> tuple[Heads, PlantedTask]:
    """The seven heads and their task, on one model."""
    model = SevenHeads()
    task = PlantedTask(model, **options)
    sites = [
        DeclaredSite("encoder", 0, n_heads=4, projection="first"),
        DeclaredSite("encoder", 1, n_heads=3, projection="second"),
    ]
    return Heads(model, sites, example=PlantedTask(model, n=4).batch(range(4))), task


def is_removed(heads: Heads, name: str) -> bool:
    """Whether the model runs without its constant (or another) head at the moment."""
    seen = {}
    site = heads.sites[HEADS[name][1]]
    hook = site.projection.register_forward_pre_hook(lambda module, arguments: seen.update(value=arguments[0]))
    with torch.no_grad():
        heads.model(torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    hook.remove()
    return bool((seen["value"][..., HEADS[name][2]] == 0).all())
