"""Who can look at whom: for each query of one layer, its visible keys, and what a uniform head would score."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from headlab.attention.reach.call import AttentionCall, visible_keys
from headlab.base.errors import UnsupportedModelError
from headlab.models.texts.batch import Tokens


@dataclass
class Geometry:
    """Visibility of the keys of one attention layer; layers with the same mask share it.

    `queries` and `keys` describe the tokens on both sides; they are the same object in self-attention.
    """

    mask: Tensor | None  # boolean, (batch or 1, 1, query, key); True = visible
    causal: bool
    queries: Tokens
    keys: Tokens
    n_queries: int
    n_keys: int
    source_mask: Tensor | None = None  # the mask as the layer got it
    shared: dict[Any, Any] = field(default_factory=dict)  # what layers with this mask share

    @property
    def self_attention(self) -> bool:
        return self.queries is self.keys

    @property
    def device(self) -> torch.device:
        return self.queries.ids.device

    @cached_property
    def query_valid(self) -> Tensor:
        """Queries that count: real tokens. Bool (batch, query)."""
        return self.queries.valid[:, -self.n_queries :]

    @cached_property
    def query_is_word(self) -> Tensor:
        """Queries at real tokens that the tokenizer did not add. Bool (batch, query)."""
        return self.query_valid & ~self.queries.special[:, -self.n_queries :]

    @cached_property
    def visible(self) -> Tensor:
        """Number of keys each query sees. Float (batch, query)."""
        batch = self.queries.ids.shape[0]
        if self.mask is not None:
            return self.mask[:, 0].sum(-1).float().expand(batch, self.n_queries)
        if self.causal:
            row = torch.arange(1, self.n_queries + 1, device=self.device).float()
            return row.expand(batch, -1)
        return torch.full((batch, self.n_queries), float(self.n_keys), device=self.device)

    @cached_property
    def first_key(self) -> Tensor:
        """Index of each text's first real key token. Int64 (batch,)."""
        return self.keys.valid[:, : self.n_keys].int().argmax(-1)

    @cached_property
    def separator(self) -> Tensor:
        """Keys that close a segment. Bool (batch, key)."""
        return self.keys.separator[:, : self.n_keys]

    @cached_property
    def has_separator(self) -> Tensor:
        """Texts with at least one separator. Bool (batch,)."""
        return self.separator.any(-1)

    def visible_among(self, keys: Tensor) -> Tensor:
        """How many of these keys (bool, (batch, key)) each query sees. Float (batch, query)."""
        if self.mask is not None:
            return (self.mask[:, 0] & keys[:, None]).sum(-1).float()
        if self.causal:
            return keys.float().cumsum(-1)[:, : self.n_queries]
        return keys.float().sum(-1, keepdim=True).expand(-1, self.n_queries)

    def visible_block(self, rows: slice) -> Tensor:
        """Which keys these queries see. Bool (batch or 1, row, key)."""
        if self.mask is not None:
            return self.mask[:, 0, rows]
        key = torch.arange(self.n_keys, device=self.device)
        row = torch.arange(self.n_queries, device=self.device)[rows]
        return (key <= row[:, None] if self.causal else torch.ones_like(key <= row[:, None]))[None]

    def sees_offset(self, offset: int) -> Tensor:
        """Queries whose key at query + offset exists and is visible. Bool (batch, query)."""
        batch = self.queries.ids.shape[0]
        target = torch.arange(self.n_queries, device=self.device) + offset
        exists = ((target >= 0) & (target < self.n_keys)).expand(batch, -1)
        if self.causal:
            return exists if offset <= 0 else torch.zeros_like(exists)
        if self.mask is None:
            return exists
        column = target.clamp(0, self.n_keys - 1)
        row = torch.arange(self.n_queries, device=self.device)
        return exists & self.mask[:, 0, row, column]

    def chance_of(self, n_targets: Tensor) -> Tensor:
        """What a uniform head puts on `n_targets` of its visible keys. Float (batch, query)."""
        return n_targets / self.visible.clamp_min(1)


def geometry_of(call: AttentionCall, queries: Tokens, keys: Tokens) -> Geometry:
    """The geometry of one call; additive masks count a key as visible where they take away less than 10,000."""
    mask = call.mask
    if mask is not None:
        mask = visible_keys(mask)[..., : call.key.shape[2]]
        if mask.shape[-2] == 1:
            mask = mask.expand(-1, -1, call.query.shape[2], -1)
        if mask.shape[1] > 1:
            if (mask != mask[:, :1]).any():
                cause = "Each head of a layer has a mask of its own."
                raise UnsupportedModelError(cause, "Statistics need a mask that all heads of a layer share.")
            mask = mask[:, :1]
    return Geometry(mask, call.causal, queries, keys, call.query.shape[2], call.key.shape[2], source_mask=call.mask)
