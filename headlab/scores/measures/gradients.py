"""Gradients with respect to head gates, example by example: shared by the scores that are made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headlab.attention.change.output_gradients import output_slopes, query_tokens, require_projections
from headlab.scores.measures.losses import batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.base.masks import HeadMask
    from headlab.scores import Progress
    from headlab.tasks import Task


def gate_gradients(
    heads: Heads, task: Task, split: str, progress: Progress | None = None, at: HeadMask | None = None
) -> Iterator[np.ndarray]:
    """D loss / d gate for batch after batch, (examples, heads), gates at 1, or those of removed heads of `at` at 0.

    Raises DataError where the split has no examples.
    """
    n_examples, seen = len(task.split(split)), 0
    batches = batches_of(task, split)
    found = heads.gradients(batches, task.losses) if at is None else heads.gradients(batches, task.losses, at=at)
    for gradients in found:
        seen += len(gradients)
        yield np.asarray(gradients, dtype=float)
        if progress:
            progress(seen, n_examples, "gradients")


def token_gradients(
    heads: Heads, task: Task, split: str, progress: Progress | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sums over real tokens of |z_h . d loss / d z_h| and the number of those tokens, each (examples, heads)."""
    require_projections(heads, "given gradients token by token")
    n_examples, seen = len(task.split(split)), 0
    for batch in batches_of(task, split):
        columns, counts = [], []
        for (kind, _), (z, slope) in output_slopes(heads, batch, task.losses).items():
            valid = query_tokens(batch, kind).valid.to(z.device)
            size = (z.double() * slope.double()).sum(-1).abs() * valid[..., None]  # (row, token, head)
            columns.append(size.sum(1).cpu().numpy())
            counts.append(np.broadcast_to(valid.sum(1, keepdim=True).cpu().numpy(), columns[-1].shape))
        sums = sum_by_example(np.concatenate(columns, 1), batch.examples)
        seen += len(sums)
        yield sums, sum_by_example(np.concatenate(counts, 1), batch.examples)
        if progress:
            progress(seen, n_examples, "gradients")


def sum_by_example(rows: np.ndarray, examples: Sequence[int]) -> np.ndarray:
    """Rows of one example added up, examples in the order in which they first appear."""
    order = {example: place for place, example in enumerate(dict.fromkeys(examples))}
    summed = np.zeros((len(order), rows.shape[1]))
    np.add.at(summed, [order[example] for example in examples], rows)
    return summed


def layer_norms(values: np.ndarray, index: pd.MultiIndex) -> np.ndarray:
    """The l2 norm of the values of each head's (kind, layer), (heads,); 1 where all of them are 0."""
    squares = pd.Series(values**2, index=index).groupby(level=["kind", "layer"]).transform("sum").to_numpy()
    return np.where(squares > 0, np.sqrt(squares), 1.0)
