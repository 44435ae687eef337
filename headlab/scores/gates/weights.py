"""Weights that are trained for a while and then put back, bit for bit, and batches in a seeded order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from headlab.base.errors import DataError, UsageError

if TYPE_CHECKING:
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task


@contextlib.contextmanager
def weights_restored(model: nn.Module) -> Iterator[None]:
    """Whatever happens to the model's parameters, buffers and gradients inside is undone afterwards.

    A copy of all of them is kept on their devices meanwhile.
    """
    tensors = [*model.parameters(), *model.buffers()]
    copies = [tensor.detach().clone() for tensor in tensors]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None  # so that training cannot add to the tensors that are kept
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that ask for gradients; UsageError for a model in which all are frozen."""
    found = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not found:
        raise UsageError("All weights of the model are frozen, so none can be trained.",
                         "Train gates alone (--train gates), or unfreeze some of the model's weights.")  # fmt: skip
    return found


def load_batches(task: Task, split: str) -> list[Batch]:
    """All batches of a split; DataError where it has none."""
    batches = list(task.batches(split))
    if not batches:
        raise DataError(f"The split {split!r} has no examples.", "Give the task more data or another split.")
    return batches


def in_seeded_order(batches: Sequence[Batch], steps: int, seed: int) -> Iterator[Batch]:
    """One batch a step: every batch once in a shuffled order, then all again in another."""
    for step in range(steps):
        epoch, place = divmod(step, len(batches))
        if place == 0:
            order = np.random.default_rng([seed, epoch]).permutation(len(batches))
        yield batches[order[place]]


def require_steps(steps: int) -> None:
    """Raise UsageError for a number of steps that trains nothing."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise UsageError(f"{steps} steps of training are out of range.", "Give a whole number of at least 1.")
