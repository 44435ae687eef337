"""Which of transformers' classes a checkpoint is opened with, and whether its weights fill that class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import transformers
from transformers.models.auto import modeling_auto as known

from headlab.base.errors import CheckpointError

PURPOSES = ("auto", "lm", "causal-lm", "classification", "features")
REMEDIES = {
    "lm": "Name a checkpoint with a language modelling head, or use a task that needs none, such as probe.",
    "causal-lm": "Name a causal language model (GPT-2, Llama, demo:smollm2).",
    "classification": "Name a fine-tuned classifier, or use the task probe, which fits one on the model's features.",
    "features": "Save the model again, with all its weights.",
    "auto": "Save the model again, with all its weights.",
}


def model_class(config: Any, purpose: str, *, trust_remote_code: bool = False) -> Any:
    """The (auto) class for a purpose: see `open_model`."""
    if purpose == "auto":
        return _named_class(config, trust_remote_code)
    if purpose == "classification":
        return transformers.AutoModelForSequenceClassification
    if purpose == "causal-lm":
        return transformers.AutoModelForCausalLM
    if purpose == "lm":
        return _language_model(config)
    return transformers.AutoModel


def _named_class(config: Any, trust_remote_code: bool) -> Any:
    """The class that the configuration names; of remote code, the auto class that leads to it."""
    name = next(iter(getattr(config, "architectures", None) or ()), None)
    if name is None:
        return transformers.AutoModel
    for auto, home in (getattr(config, "auto_map", None) or {}).items():
        if trust_remote_code and auto.startswith("AutoModel") and str(home).endswith(f".{name}"):
            return getattr(transformers, auto)
    return getattr(transformers, name, transformers.AutoModel)


def _language_model(config: Any) -> Any:
    """Sequence-to-sequence, masked or causal: what the checkpoint was trained as, else what its type mostly is."""
    kind, named = config.model_type, set(getattr(config, "architectures", None) or ())
    causal = known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    masked = known.MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(kind)
    if getattr(config, "is_encoder_decoder", False):
        return transformers.AutoModelForSeq2SeqLM
    if causal in named or masked is None or getattr(config, "is_decoder", False):
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForMaskedLM


def require_trained(name: str, model: Any, missing: Iterable[str], purpose: str) -> None:
    """Raise CheckpointError where weights would be left at random.

    A missing pooler is let pass: masked language models come without one, and it stands after all attention.
    """
    lost = sorted(key for key in missing if "pooler" not in key)
    if not lost:
        return
    shown = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
    raise CheckpointError(f"{name!r} has no weights for {type(model).__name__}: {shown}.", REMEDIES[purpose])
