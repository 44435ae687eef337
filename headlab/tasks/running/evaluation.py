"""Running a task over a model: per-example sufficient statistics and the metrics that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import nn

from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch


class Evaluable(Protocol):
    """What an evaluation needs of a task."""

    metrics: tuple[str, ...]

    @property
    def network(self) -> nn.Module: ...
    def split(self, name: str) -> np.ndarray: ...
    def batches(self, split: str) -> Iterable[Batch]: ...
    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, torch.Tensor]: ...
    def signature(self) -> dict[str, Any]: ...


Progress = Callable[[int, int], None]  # (examples done, examples in all)


@dataclass(frozen=True)
class Evaluation:
    """What a model scored on a task.

    `examples` has one row per example (index: example id) and one float64 column per sufficient statistic; `values`
    has the metrics, the task's main one first. A forward pass that ended in NaN is NaN here.
    """

    examples: pd.DataFrame
    values: dict[str, float]
    signature: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.examples)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in self.values.items()) + f" ({len(self)} examples)"

    __repr__ = __str__


def evaluate(task: Evaluable, split: str, progress: Progress | None) -> Evaluation:
    """Run the task's model as it is, masks included, and leave its training flags as they were."""
    from headlab.metrics import metric

    total, done = len(task.split(split)), 0
    found: list[pd.DataFrame] = []
    model = task.network
    # no_grad rather than inference_mode: what a model caches in its first pass must still serve a backward pass later.
    with evaluating(model), torch.no_grad():
        for batch in task.batches(split):
            columns = task.statistics(model, batch)
            ids = batch.example_ids
            found.append(pd.DataFrame({name: as_numbers(values) for name, values in columns.items()}, index=ids))
            done += len(ids)
            if progress:
                progress(done, total)
    examples = pd.concat(found).sort_index().rename_axis("example")
    values = {name: metric(name).of({c: examples[c].to_numpy() for c in examples}) for name in task.metrics}
    return Evaluation(examples, values, {**task.signature(), "evaluated": split})


def as_numbers(values: torch.Tensor) -> np.ndarray:
    """A tensor as a float64 array."""
    return values.detach().cpu().double().numpy()
