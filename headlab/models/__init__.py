"""What is looked at: checkpoints, the texts they are shown, and the small models and texts of the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headlab.models.demo.checkpoints import demo_models

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint as Checkpoint
    from headlab.models.opening import open_model as open_model
    from headlab.models.texts.batch import Batch as Batch
    from headlab.models.texts.batch import Tokens as Tokens

__all__ = ["Batch", "Checkpoint", "Tokens", "demo_models", "open_model"]

_HOMES = {
    "Batch": "headlab.models.texts.batch",
    "Checkpoint": "headlab.models.checkpoint",
    "Tokens": "headlab.models.texts.batch",
    "open_model": "headlab.models.opening",
}


def __getattr__(name: str) -> Any:
    """The names whose modules import torch, on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headlab.models' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
