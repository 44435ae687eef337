"""Running a task over a model: per-example sufficient statistics and the metrics that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from headlab.metrics import metric
from headlab.models.state import evaluating
from headlab.tasks.running.evaluation import Evaluation

if TYPE_CHECKING:
    from headlab.base.progress import Progress
    from headlab.tasks.running.contract import Task


def evaluate(task: Task, split: str = "all", progress: Progress | None = None) -> Evaluation:
    """Run the task's model as it is, masks included, and leave its training flags as they were.

    What a task of one's own calls in its `evaluate`; `progress` is called with (examples done, in all).
    """
    total, done = len(task.split(split)), 0
    parts: list[pd.DataFrame] = []
    # no_grad rather than inference_mode: what a model caches in its first pass must still serve a backward pass later.
    with evaluating(task.network), torch.no_grad():
        for batch in task.batches(split):
            columns = task.statistics(task.network, batch)
            ids = batch.example_ids
            parts.append(pd.DataFrame({name: as_numbers(values) for name, values in columns.items()}, index=ids))
            done += len(ids)
            if progress:
                progress(done, total)
    examples = pd.concat(parts).sort_index().rename_axis("example")
    values = {name: metric(name).of({c: examples[c].to_numpy() for c in examples}) for name in task.metrics}
    return Evaluation(examples, values, {**task.signature(), "evaluated": split})


def as_numbers(values: torch.Tensor) -> np.ndarray:
    """A tensor as a float64 array."""
    return values.detach().cpu().double().numpy()
