"""The part of a model that runs so that its attention is seen: without the language-model head, where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headlab.attention.reach.sites import Site, difference, output_tensor, tolerance
from headlab.attention.reach.views import View, site_handler
from headlab.base.masks import LayerKey
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch


@dataclass(frozen=True)
class Trunk:
    """A module whose pass reaches every site; `takes_use_cache`: it takes use_cache=False and says the same."""

    module: nn.Module
    takes_use_cache: bool

    def forward(self, batch: Batch) -> None:
        """One pass for what it shows on the way."""
        # keys and values of all layers would be kept for nothing
        self.module(**_without_labels(batch), **({"use_cache": False} if self.takes_use_cache else {}))


def find_trunk(model: nn.Module, sites: Sequence[Site], view: View, example: Batch) -> Trunk:
    """The base model, if running it alone reaches every site; else the model itself."""
    base = getattr(model, "base_model", None)
    module = model
    if isinstance(base, nn.Module) and base is not model and _reaches_all(base, model, sites, view, example):
        module = base
    return Trunk(module, _takes_use_cache(module, model, example))


def _reaches_all(base: nn.Module, model: nn.Module, sites: Sequence[Site], view: View, example: Batch) -> bool:
    reached: set[LayerKey] = set()
    handler = site_handler(sites, lambda site, call: reached.add(site.key), view)
    try:
        with torch.no_grad(), evaluating(model), view.engage(model, handler):
            base(**example.inputs)
    except Exception:  # whatever a base model raises on inputs that were made for the whole one
        return False
    return len(reached) == len(sites)


def _takes_use_cache(trunk: nn.Module, model: nn.Module, example: Batch) -> bool:
    inputs = _without_labels(example)
    try:
        with torch.no_grad(), evaluating(model):
            plain = output_tensor(trunk(**inputs))
            without = output_tensor(trunk(**inputs, use_cache=False))
    except Exception:  # a module that has never heard of use_cache may raise anything
        return False
    return difference(without, plain, example) <= tolerance(model)


def _without_labels(batch: Batch) -> dict[str, Any]:
    return {name: value for name, value in batch.inputs.items() if name != "labels"}
