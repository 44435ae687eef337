"""The translation student of Firefox as a torch module: transformer encoder, recurrent decoder with cross-attention.

The architecture is Marian's `tiny` student: post-norm layers, ReLU, sinusoidal positions, one embedding for source,
target and output, and in the decoder a simpler simple recurrent unit (Kim et al. 2019) in place of self-attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

NORM_EPSILON = 1e-6


@dataclass(frozen=True)
class StudentConfig:
    """Sizes, and the ids of special tokens; the decoder starts from a zero vector, which has an id of its own."""

    vocab_size: int
    d_model: int
    n_heads: int
    ffn_dim: int
    encoder_layers: int
    decoder_layers: int
    eos_token_id: int = 0
    unk_token_id: int = 1
    pad_token_id: int = 0
    is_encoder_decoder: bool = True

    @property
    def decoder_start_token_id(self) -> int:
        return self.vocab_size


@dataclass(frozen=True)
class StudentOutput:
    """Scores of the next token, (batch, target, vocabulary), and the encoder's states, (batch, source, d_model)."""

    logits: Tensor
    encoder_last_hidden_state: Tensor


class Attention(nn.Module):
    """Multi-head attention over keys and values that may have been projected before."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        """(batch, token, width) as (batch, head, token, head width)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (batch, head, key, head width) of (batch, key, width)."""
        return self.split(self.key(memory)), self.split(self.value(memory))

    def forward(self, x: Tensor, keys_values: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """`mask`: bool (batch, 1, 1, key), True = visible."""
        query = self.split(self.query(x))
        mixed = functional.scaled_dot_product_attention(query, *keys_values, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two matrices with a ReLU between them."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


class RecurrentUnit(nn.Module):
    """SSRU: c_t = f_t c_(t-1) + (1 - f_t) W x_t with f_t = sigmoid(W_f x_t + b_f); its output is relu(c_t)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.candidate, self.forget = nn.Linear(width, width, bias=False), nn.Linear(width, width)

    def forward(self, x: Tensor, cell: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs and the new cell, of `x` (batch, token, width) and the last cell (batch, width); skips padding."""
        keep, candidate = self.forget(x).sigmoid(), self.candidate(x)
        cells = []
        for step in range(x.shape[1]):
            following = keep[:, step] * cell + (1 - keep[:, step]) * candidate[:, step]
            cell = following if valid is None else torch.where(valid[:, step, None], following, cell)
            cells.append(cell)
        return torch.stack(cells, 1).relu(), cell


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each added to its input and normalised."""

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        self.self_attention = Attention(config.d_model, config.n_heads)
        self.feed_forward = FeedForward(config.d_model, config.ffn_dim)
        self.attention_norm, self.feed_forward_norm = (nn.LayerNorm(config.d_model, NORM_EPSILON) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(x + self.self_attention(x, self.self_attention.keys_values(x), mask))
        return self.feed_forward_norm(x + self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Recurrent unit, cross-attention and feed-forward, each added to its input and normalised."""

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        self.recurrence = RecurrentUnit(config.d_model)
        self.cross_attention = Attention(config.d_model, config.n_heads)
        self.feed_forward = FeedForward(config.d_model, config.ffn_dim)
        self.recurrence_norm, self.attention_norm, self.feed_forward_norm = (
            nn.LayerNorm(config.d_model, NORM_EPSILON) for _ in range(3)
        )

    def forward(
        self, x: Tensor, cell: Tensor, memory: tuple[Tensor, Tensor], mask: Tensor, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        recurrent, cell = self.recurrence(x, cell, valid)
        x = self.recurrence_norm(x + recurrent)
        x = self.attention_norm(x + self.cross_attention(x, memory, mask))
        return self.feed_forward_norm(x + self.feed_forward(x)), cell


class FirefoxStudent(nn.Module):
    """The whole student. Its heads are those of encoder self-attention and of cross-attention."""

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """(batch, token) to (batch, token, d_model); the start token is a zero vector. Positions count from 0."""
        known = ids < self.config.vocab_size
        embedded = self.embedding(ids.clamp_max(self.config.vocab_size - 1)) * known.unsqueeze(-1)
        half = self.config.d_model // 2
        rates = torch.exp(torch.arange(half, device=ids.device) * (-math.log(10_000) / (half - 1)))
        angles = positions.unsqueeze(-1) * rates
        sinusoid = torch.cat([angles.sin(), angles.cos()], -1).to(embedded.dtype)
        return embedded * math.sqrt(self.config.d_model) + sinusoid

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Encoder states (batch, source, d_model) and the mask (batch, 1, 1, source) for attention to them."""
        valid = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mask = valid.bool()[:, None, None]
        x = self.embed(input_ids, _positions(valid))
        for layer in self.encoder:
            x = layer(x, mask)
        return x, mask

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
    ) -> StudentOutput:
        """Scores of each next target token, given the target shifted right behind the start token."""
        states, mask = self.encode(input_ids, attention_mask)
        if decoder_input_ids is None:
            decoder_input_ids = self._start(len(input_ids), input_ids.device)
        valid = torch.ones_like(decoder_input_ids) if decoder_attention_mask is None else decoder_attention_mask
        x = self.embed(decoder_input_ids, _positions(valid))
        cell = states.new_zeros(len(states), states.shape[-1])
        for layer, memory in zip(self.decoder, self.memory(states), strict=True):
            x, _ = layer(x, cell, memory, mask, valid.bool())
        return StudentOutput(self.scores(x), states)

    def memory(self, states: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each decoder layer's keys and values (batch, head, source, head width) of encoder states."""
        layers = cast("list[DecoderLayer]", list(self.decoder))
        return [layer.cross_attention.keys_values(states) for layer in layers]

    def scores(self, x: Tensor) -> Tensor:
        """Scores of the vocabulary, through the embedding itself."""
        return functional.linear(x, self.embedding.weight, self.output_bias)

    def _start(self, rows: int, device: torch.device) -> Tensor:
        return torch.full((rows, 1), self.config.decoder_start_token_id, device=device)


def _positions(valid: Tensor) -> Tensor:
    """Number of real tokens before each one, so that padding on either side moves nothing."""
    return (valid.long().cumsum(-1) - 1).clamp_min(0)
