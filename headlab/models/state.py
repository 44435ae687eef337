"""What is changed about a model for a while, and put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; each module's own training flag is put back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in flags:
            module.training = training


@contextlib.contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter asks for a gradient inside; each parameter's own flag is put back afterwards."""
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def device_of(model: nn.Module) -> torch.device:
    """Where the model's inputs go: to its first parameter that is anywhere; the CPU for a model without any."""
    return next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))
