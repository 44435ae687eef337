"""The control that has learned nothing: the same architecture and tokenizer with fresh random weights."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from headlab.base.errors import UnsupportedModelError

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint


def random_weights(checkpoint: Checkpoint, *, seed: int = 0) -> Checkpoint:
    """The checkpoint with weights drawn as before training; the caller's random state is left alone.

    Raises UnsupportedModelError for a model whose class cannot be made from its configuration.
    """
    model = checkpoint.model
    parameter = next(model.parameters())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            fresh = type(model)(copy.deepcopy(model.config))
        except (TypeError, ValueError, AttributeError) as error:
            cause = f"{type(model).__name__} cannot be made anew ({str(error).splitlines()[0]})."
            raise UnsupportedModelError(cause, "The random-weights control is for transformers models.") from error
    fresh = fresh.to(parameter.device, parameter.dtype).eval()
    return replace(checkpoint, model=fresh, revision=f"random:{seed}")
