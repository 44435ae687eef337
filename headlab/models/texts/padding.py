"""Rows of different lengths in one tensor: padding, positions, and what a decoder is shown."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headlab.base.errors import UsageError
from headlab.models.checkpoint import reserved_positions
from headlab.models.texts.batch import Tokens
from headlab.models.texts.special_tokens import padding_id, separator_id

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint


def padded(rows: Sequence[Any], fill: int | bool, pad_side: str = "right") -> Tensor:
    """Rows of numbers or truth values, filled up to the longest: (rows, longest)."""
    width = max(map(len, rows))
    block = np.full((len(rows), width), fill)
    for filled, row in zip(block, rows, strict=True):
        start = width - len(row) if pad_side == "left" else 0
        filled[start : start + len(row)] = row
    return torch.from_numpy(block)


def padded_tokens(tokenizer: Any, ids: Sequence[Any], special: Sequence[Any], pad_side: str = "right") -> Tokens:
    """Rows of token ids, of which `special` were added by the tokenizer, as one block of tokens (rows, longest)."""
    block = padded(ids, padding_id(tokenizer), pad_side)
    valid = padded([[True] * len(row) for row in ids], False, pad_side)
    separator = separator_id(tokenizer)
    closing = torch.zeros_like(valid) if separator is None else valid & (block == separator)
    return Tokens(block, valid, padded(special, False, pad_side), closing)


def decoder_tokens(
    checkpoint: Checkpoint, ids: Sequence[Any], special: Sequence[Any], pad_side: str = "right"
) -> Tokens:
    """Rows as a decoder is shown them, one place later behind its start token: (rows, longest)."""
    start = decoder_start(checkpoint.model)
    shifted = [[start, *row[:-1]] for row in ids]
    return padded_tokens(checkpoint.tokenizer, shifted, [[True, *row[:-1]] for row in special], pad_side)


def decoder_start(model: Any) -> int:
    """Id that a sequence-to-sequence model's decoder starts with."""
    for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
        for config in (model.config, getattr(model, "generation_config", None)):
            if isinstance(value := getattr(config, name, None), int):
                return value
    return 0


def model_inputs(model: Any, source: Tokens, target: Tokens | None = None, pad_side: str = "right") -> dict[str, Any]:
    """Arguments of a model's forward for its tokens, those of a decoder among them where there is a target.

    Positions count from a row's first real token; a model that counts in this way itself (RoBERTa's kind) is given
    none. Raises UsageError for padding on the left where the model takes no positions.
    """
    inputs = {"input_ids": source.ids, "attention_mask": source.valid.long()}
    if pad_side == "left" and not reserved_positions(model):
        if "position_ids" not in inspect.signature(model.forward).parameters:
            cause = "The model takes no position_ids, so padding on the left would move its tokens."
            raise UsageError(cause, 'Use pad_side="right".')
        inputs["position_ids"] = (source.valid.long().cumsum(dim=1) - 1).clamp(min=0)
    if target is not None:
        inputs |= {"decoder_input_ids": target.ids, "decoder_attention_mask": target.valid.long()}
    return inputs
