"""The short random texts on which a model is probed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headlab.base.errors import UnsupportedModelError
from headlab.models.texts.batch import Batch, Tokens

# Different lengths for source and target: their attention shapes then tell encoder, decoder and cross apart.
SOURCE_LENGTH, TARGET_LENGTH, PADDING = 11, 7, 3


def example_batch(model: nn.Module) -> Batch:
    """Two random texts, the second padded on the right, as inputs for any text model of transformers.

    Raises UnsupportedModelError for a model without a configuration or without token embeddings.
    """
    config = getattr(model, "config", None)
    if config is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} is not a transformers model.",
            "Pass example=Batch(...) with inputs that its forward takes, and "
            "sites=[DeclaredSite(...)] where its attention is its own.",
        )
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = getattr(text, "vocab_size", None) or getattr(config, "vocab_size", None)
    if not vocabulary or getattr(model, "main_input_name", "input_ids") != "input_ids":
        raise UnsupportedModelError(
            f"{type(model).__name__} does not read tokens.",
            "headlab looks at text models; pass example=Batch(...) to try another one.",
        )
    device = next(p.device for p in model.parameters() if not p.is_meta)
    named = [item for part in (config, text) for item in vars(part).items()]
    special = {v for name, v in named if name.endswith(("_token_id", "_token_index")) and isinstance(v, int)}
    allowed = torch.tensor([i for i in range(min(vocabulary, 30_000)) if i not in special])
    generator = torch.Generator().manual_seed(0)
    source = _tokens(allowed, SOURCE_LENGTH, generator, device)
    inputs: dict[str, Tensor] = {"input_ids": source.ids, "attention_mask": source.valid.long()}
    target = None
    if getattr(config, "is_encoder_decoder", False):
        target = _tokens(allowed, TARGET_LENGTH, generator, device)
        inputs |= {"decoder_input_ids": target.ids, "decoder_attention_mask": target.valid.long()}
    return Batch(inputs, source, target, examples=(0, 1))


def _tokens(allowed: Tensor, length: int, generator: torch.Generator, device: torch.device) -> Tokens:
    ids = allowed[torch.randint(len(allowed), (2, length), generator=generator)]
    valid = torch.ones(2, length, dtype=torch.bool)
    valid[1, length - PADDING :] = False
    none = torch.zeros_like(valid)
    return Tokens(ids.to(device), valid.to(device), none.to(device), none.to(device))
