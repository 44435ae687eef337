"""Steps of Adam on batches in a seeded order, and weights that are put back afterwards, bit for bit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from headlab.base.errors import UsageError
from headlab.models.state import evaluating

if TYPE_CHECKING:
    from headlab.models.texts.batch import Batch


def take_steps(
    model: nn.Module,
    groups: Sequence[dict[str, Any]],
    batches: Sequence[Batch],
    steps: int,
    seed: int,
    loss_of: Callable[[int, Batch], tuple[Tensor, Tensor]],
    after: Callable[[int], object],
) -> np.ndarray:
    """Train parameters without dropout, one batch a step; gives the loss of every step, (steps,).

    `groups` are those of torch.optim. `loss_of(step, batch)` gives the loss that is noted and the sum that is made
    small; `after(step)` is called at a step's end. A step whose loss or slopes are no numbers is passed over, its loss
    NaN.
    """
    optimizer = torch.optim.Adam(list(groups))
    weights = [parameter for group in groups for parameter in group["params"]]
    losses = np.full(steps, np.nan)
    with torch.inference_mode(False), torch.enable_grad(), evaluating(model):
        for step, batch in enumerate(in_seeded_order(batches, steps, seed)):
            loss, total = loss_of(step, batch.clone())
            optimizer.zero_grad()
            total.backward()
            slopes = [parameter.grad for parameter in weights if parameter.grad is not None]
            if all(bool(values.isfinite().all()) for values in (loss, *slopes)):
                losses[step] = loss.item()
                optimizer.step()
            after(step)
    optimizer.zero_grad()
    return losses


def in_seeded_order(batches: Sequence[Batch], steps: int, seed: int) -> Iterator[Batch]:
    """One batch a step: every batch once in a shuffled order, then all again in another."""
    for step in range(steps):
        epoch, place = divmod(step, len(batches))
        if place == 0:
            order = np.random.default_rng([seed, epoch]).permutation(len(batches))
        yield batches[order[place]]


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that ask for gradients; UsageError for a model in which all are frozen."""
    found = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not found:
        raise UsageError(
            "All weights of the model are frozen, so none can be trained.",
            "Train gates alone (--train gates), or unfreeze some of the model's weights.",
        )
    return found


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
