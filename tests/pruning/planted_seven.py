"""Seven heads whose worth is known: useful, a redundant pair, dead, harmful, constant, noise.

The model is a formula with a gate per head, small enough to compute every number by hand; it stands in for a
transformer where scores, orderings and sweeps are tested, and nothing in it is a mock: masks change what it computes.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional

from headlab.attention.masks import HeadMask

NAMES = ("useful", "redA", "redB", "dead", "harmful", "const", "noise")
SIZES = {("encoder", 0): 4, ("encoder", 1): 3}
HEADS = {name: ("encoder", *((0, i) if i < 4 else (1, i - 4))) for i, name in enumerate(NAMES)}
N = 2000


def draws() -> tuple[np.ndarray, np.ndarray]:
    """Labels (+1 or -1) and noise of 2,000 examples: the draws behind the published numbers."""
    rng = np.random.default_rng(0)
    rng.permutation(48), rng.integers(2, 50, size=64)  # drawn for something else before
    labels = rng.choice([-1, 1], N)
    rng.standard_normal(N)  # drawn and multiplied by 0
    return labels.astype(float), rng.standard_normal(N)


class SevenHeads(nn.Module):
    """The logit of class +1 from seven head outputs, each under its gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = torch.ones(7, dtype=torch.float64)
        self.instead = torch.zeros(7, dtype=torch.float64)  # what takes the place of a removed head

    def outputs(self, labels: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """(examples, heads)"""
        one = torch.ones_like(labels)
        columns = [2.5 * labels, labels, labels, 0 * one, -0.8 * labels, 3.0 * one, 0.3 * noise]
        return torch.stack(columns, dim=1)

    def forward(self, labels: torch.Tensor, noise: torch.Tensor, gates: torch.Tensor | None = None) -> torch.Tensor:
        gates = self.gates if gates is None else gates
        z = self.outputs(labels, noise) * gates + self.instead * (1 - gates)
        useful, red_a, red_b, dead, harmful, const, extra = z.unbind(dim=1)
        # One copy of the pair suffices; the rest of the network was trained against the constant.
        return useful + dead + harmful + extra + 3 * torch.tanh(2 * (red_a + red_b)) + (const - 3)


@dataclass(frozen=True)
class PlantedBatch:
    examples: np.ndarray
    labels: torch.Tensor
    noise: torch.Tensor

    def clone(self) -> PlantedBatch:
        return self


class PlantedHeads:
    """What scores and sweeps ask of Heads."""

    def __init__(self, model: SevenHeads) -> None:
        self.model = model
        self.heads_per_layer = dict(SIZES)
        self.index = pd.MultiIndex.from_tuples(list(HEADS.values()), names=["kind", "layer", "head"])
        self.mean_calls = 0

    @contextlib.contextmanager
    def masked(self, mask: HeadMask, ablation: str = "zero", means: dict | None = None):
        before = self.model.gates, self.model.instead
        self.model.gates = torch.tensor(
            np.concatenate([mask[key] for key in self.heads_per_layer]), dtype=torch.float64
        )
        if ablation == "mean":
            self.model.instead = torch.cat([means[key][:, 0] for key in self.heads_per_layer])
        try:
            yield
        finally:
            self.model.gates, self.model.instead = before

    @contextlib.contextmanager
    def gate_context(self, gates: dict):
        before = self.model.gates
        self.model.gates = torch.cat([gates[key] for key in self.heads_per_layer], dim=-1).double()
        try:
            yield
        finally:
            self.model.gates = before

    def mean_outputs(self, batches) -> dict:
        self.mean_calls += 1
        means = torch.cat([self.model.outputs(b.labels, b.noise) for b in batches]).mean(dim=0)
        return {("encoder", 0): means[:4, None], ("encoder", 1): means[4:, None]}

    def gradients(self, batches, loss):
        for batch in batches:
            gates = torch.ones(len(batch.labels), 7, dtype=torch.float64, requires_grad=True)
            self.model.gates, before = gates, self.model.gates
            try:
                (found,) = torch.autograd.grad(loss(self.model, batch).sum(), gates)
            finally:
                self.model.gates = before
            yield found.numpy()


@dataclass
class PlantedEvaluation:
    examples: pd.DataFrame


class PlantedTask:
    """What scores and sweeps ask of a Task: a two-class decision, its accuracy and its loss."""

    name = "planted"
    metrics: tuple[str, ...] = ("accuracy", "loss")

    def __init__(self, model: SevenHeads, *, batch_size: int = 500, n: int = N) -> None:
        self.model = model
        self.batch_size = batch_size
        labels, noise = draws()
        self.labels, self.noise = torch.tensor(labels[:n]), torch.tensor(noise[:n])
        self.evaluations = 0
        self.n = n

    def split(self, name: str) -> np.ndarray:
        return {"all": np.arange(self.n), "select": np.arange(0, self.n, 2), "report": np.arange(1, self.n, 2)}[name]

    def batches(self, split: str = "all"):
        chosen = self.split(split)
        for start in range(0, len(chosen), self.batch_size):
            ids = chosen[start : start + self.batch_size]
            yield PlantedBatch(ids, self.labels[ids], self.noise[ids])

    def losses(self, model: SevenHeads, batch: PlantedBatch) -> torch.Tensor:
        return functional.softplus(-model(batch.labels, batch.noise) * batch.labels)

    def evaluate(self, split: str = "all", progress=None) -> PlantedEvaluation:
        self.evaluations += 1
        rows = []
        with torch.no_grad():
            for batch in self.batches(split):
                margin = self.model(batch.labels, batch.noise) * batch.labels
                columns = {"correct": (margin > 0).double(), "examples": 1.0, "loss": functional.softplus(-margin)}
                rows.append(pd.DataFrame(columns, index=batch.examples))
        return PlantedEvaluation(pd.concat(rows))

    def keeping(self, folder, key) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def signature(self) -> dict:
        return {"task": self.name, "n": self.n}


def planted(**options) -> tuple[PlantedHeads, PlantedTask]:
    """The seven heads and their task, on one model."""
    model = SevenHeads()
    return PlantedHeads(model), PlantedTask(model, **options)
