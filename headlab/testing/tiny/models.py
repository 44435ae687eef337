"""A tiny model of any type that transformers knows, with random weights: to try things without a download."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.models.auto import modeling_auto as known
from transformers.pytorch_utils import Conv1D

from headlab.base.errors import UsageError, unknown_name
from headlab.testing.tiny.config import tiny_config

__all__ = ["MAPPINGS", "tiny_config", "tiny_model"]

# "lm" is the first of the first three that a type has.
MAPPINGS: dict[str, Mapping[str, Any]] = {
    "seq2seq-lm": known.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "masked-lm": known.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "causal-lm": known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "speech": known.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    "image": known.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    "features": known.MODEL_MAPPING_NAMES,
}
# Standard deviation of a layer's output over that of its input, and of an embedding.
GAIN = 1.5


def tiny_model(model_type: str, purpose: str = "lm", *, seed: int = 0, **overrides: Any) -> nn.Module:
    """A model of this type with some hundred thousand random weights, in eval mode; nothing is downloaded.

    `purpose`: "lm" (sequence-to-sequence, masked or causal: the first that the type has), one of these by name
    ("seq2seq-lm", "masked-lm", "causal-lm"), "speech", "image" or "features" (the bare model). Its configuration is
    the type's own default one with every size made small and each kind of layer kept; `overrides` win. Matrices are
    larger than a fresh model's, so that attention is far from uniform. The same seed gives the same weights. Raises
    UsageError for a type or purpose that transformers does not have.
    """
    cls = getattr(transformers, class_name(model_type, purpose))
    config = _part_for(cls, tiny_config(model_type, **overrides))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = cls._from_config(config)
        enlarge_weights(model)
    return model.eval()


def _part_for(cls: Any, config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration itself, or the part of it that the class is made from."""
    if isinstance(config, cls.config_class):
        return config
    parts = [getattr(config, name, None) for name in config.sub_configs]
    return next((part for part in parts if isinstance(part, cls.config_class)), config)


def class_name(model_type: str, purpose: str = "lm") -> str:
    """The name of the class in transformers that serves a purpose for a model type."""
    if purpose != "lm" and purpose not in MAPPINGS:
        raise unknown_name("purpose", purpose, ("lm", *MAPPINGS))
    chosen = list(MAPPINGS.values())[:3] if purpose == "lm" else [MAPPINGS[purpose]]
    if not any(model_type in mapping for mapping in chosen):
        if model_type not in transformers.CONFIG_MAPPING:
            raise unknown_name("model type", model_type, transformers.CONFIG_MAPPING.keys())
        raise UsageError(f"transformers has no {purpose} model of type {model_type!r}.", "Try purpose='features'.")
    name = next(mapping[model_type] for mapping in chosen if model_type in mapping)
    return name if isinstance(name, str) else name[0]


def enlarge_weights(model: nn.Module) -> None:
    """Scale every matrix so that signals keep their size on the way, and move norms and biases off 1 and 0."""
    seen: set[int] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                _enlarge(module, name, parameter)


@torch.no_grad()
def _enlarge(module: nn.Module, name: str, parameter: Tensor) -> None:
    if not parameter.is_floating_point() or parameter.numel() == 0:
        return
    if isinstance(module, nn.Embedding):
        _set_deviation(parameter, 1.0)
    elif isinstance(module, nn.Linear | Conv1D) and name == "weight":
        fan_in = parameter.shape[0] if isinstance(module, Conv1D) else parameter.shape[1]
        _set_deviation(parameter, GAIN * fan_in**-0.5)
    elif name.endswith("bias"):
        parameter.add_(torch.randn_like(parameter) * 0.1)
    elif parameter.dim() == 3 and not isinstance(module, nn.Conv1d):  # all experts in one tensor
        _set_deviation(parameter, GAIN * min(parameter.shape[1:]) ** -0.5)
    elif parameter.dim() == 1 and "norm" in type(module).__name__.lower():
        parameter.mul_(1 + torch.rand_like(parameter) * 0.2)


def _set_deviation(parameter: Tensor, deviation: float) -> None:
    found = parameter.std().item()
    if found > 0:
        parameter.mul_(deviation / found)
    else:
        parameter.normal_(0, deviation)
