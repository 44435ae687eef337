"""Models and examples that are refused before anything is tried, each with its reason."""

from __future__ import annotations

import torch
from torch import nn

from headlab.base.errors import UnsupportedModelError, UsageError
from headlab.models.texts.batch import Batch

_PRECISIONS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def check_model(model: nn.Module, example: Batch) -> None:
    """Raise UnsupportedModelError for a quantised model, UsageError for an example that leaves kinds of layers open."""
    if (method := quantisation(model)) is not None:
        raise UnsupportedModelError(
            f"The weights of {type(model).__name__} are quantised ({method}): its heads get no gradients and no norms.",
            "Open the checkpoint that it was made from, with dtype bfloat16 where memory is short.",
        )
    if example.target is not None and example.source.ids.shape[1] == example.target.ids.shape[1]:
        raise UsageError(
            f"Source and target of the example both have {example.source.ids.shape[1]} tokens: encoder, decoder and "
            "cross-attention cannot be told apart.",
            "Give an example whose sides differ in length.",
        )


def quantisation(model: nn.Module) -> str | None:
    """How a model's weights are quantised; None where they are plain floating-point numbers."""
    settings = getattr(getattr(model, "hf_quantizer", None), "quantization_config", None)
    if settings is not None and (method := getattr(settings, "quant_method", None)) is not None:
        return str(getattr(method, "value", method))
    for module in model.modules():
        if type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")):
            return f"{type(module).__name__} of torch"
    other = next((p.dtype for p in model.parameters() if p.dtype not in _PRECISIONS), None)
    return None if other is None else str(other).removeprefix("torch.")


def without_attention(model: nn.Module) -> UnsupportedModelError:
    """The refusal of a model in which no attention was seen at all."""
    return UnsupportedModelError(
        f"{type(model).__name__} has no softmax attention that headlab can see, and returns no attention maps.",
        "Name a transformer; where it is your own module, declare its attention with DeclaredSite.",
    )
