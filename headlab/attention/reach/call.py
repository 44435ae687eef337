"""One call of an attention function: what a layer hands over before any weight exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class AttentionCall:
    """One call of the attention function: what a layer computed, before any weight exists.

    Shapes: query (batch, head, query, dim), key (batch, kv_head, key, dim), value (batch, kv_head, key, value_dim);
    mask is None, boolean (True = visible) or additive, broadcastable to (batch, head, query, key).
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scaling: float
    causal: bool  # without a mask: may a query see later keys?
    position_bias: Tensor | None = None  # added to the scores (T5)
    sink_logits: Tensor | None = None  # (head,), one more logit in the denominator (GPT-OSS)
    softcap: float | None = None  # scores become softcap * tanh(scores / softcap) (Gemma 2)
    weights: Tensor | None = None  # known by its attention (batch, head, query, key) alone; the others hold shapes
    arguments: dict[str, Any] | None = None  # everything as it was passed, for the model's own eager function

    @property
    def n_heads(self) -> int:
        return self.query.shape[1]


# Returns the output (batch, query, head, value_dim), or the attention of a call known by its weights alone; None where
# the call is no attention of a known layer.
Handler = Callable[[AttentionCall], Tensor | None]


def by_query_head(values: Tensor, n_heads: int, dim: int = 1) -> Tensor:
    """Keys or values of kv heads along `dim`, repeated so that each query head has its own."""
    return values.repeat_interleave(n_heads // values.shape[dim], dim)


def visible_keys(mask: Tensor) -> Tensor:
    """A mask as booleans, True = visible: an additive one hides a key by taking away 10,000 or more."""
    return mask if mask.dtype == torch.bool else mask > -1e4
