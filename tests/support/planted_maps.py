"""A model whose attention is written by hand: each head's scores are a function of the tokens, the rest is random."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tests.support.reference import make_batch
from tests.support.tiny_models import SEPARATOR, VOCABULARY

Scores = Callable[[torch.Tensor], torch.Tensor]  # ids (token,) -> scores (token, token), before the mask
FAR = 50.0  # exp(-50) is nothing


def everywhere(ids: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(ids), len(ids))


def at_offset(offset: int, mass: float = 1.0) -> Scores:
    """Each query puts `mass` on the key at that offset and spreads the rest (over itself alone where mass is 1)."""

    def scores(ids: torch.Tensor) -> torch.Tensor:
        n = len(ids)
        found = torch.zeros(n, n)
        for i in range(n):
            if 0 <= i + offset < n:
                found[i, i + offset] = FAR if mass == 1 else np.log(mass / (1 - mass) * (n - 1))
        return found

    return scores


def on_first(ids: torch.Tensor) -> torch.Tensor:
    return FAR * torch.nn.functional.one_hot(torch.zeros(len(ids), dtype=torch.long), len(ids)).float()


def on_separators(ids: torch.Tensor) -> torch.Tensor:
    return FAR * (ids == SEPARATOR).float().expand(len(ids), -1)


def weights(matrix: Callable[[int], np.ndarray]) -> Scores:
    """Scores whose softmax is the given matrix of a length (rows sum to 1)."""
    return lambda ids: torch.tensor(np.log(np.maximum(matrix(len(ids)), 1e-30))).float()


class PlantedConfig(PreTrainedConfig):
    model_type = "planted-maps"

    def __init__(self, causal: bool = False, window: int | None = None, **more) -> None:
        super().__init__(**more)
        self.vocab_size, self.hidden_size, self.causal, self.window = VOCABULARY, 16, causal, window


def eager_attention_forward(module, query, key, value, attention_mask, scaling, **_):
    attention = (query @ key.transpose(2, 3) * scaling + attention_mask).softmax(-1)
    return (attention @ value).transpose(1, 2), attention


class PlantedAttention(nn.Module):
    def __init__(self, config: PlantedConfig, scores: Sequence[Scores]) -> None:
        super().__init__()
        self.config, self.scores = config, scores
        self.v_proj = nn.Linear(16, 4 * len(scores))
        self.o_proj = nn.Linear(4 * len(scores), 16)

    def forward(self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor):
        batch, n = ids.shape
        query = torch.stack([torch.stack([scores(text) for scores in self.scores]) for text in ids])
        key = torch.eye(n).expand(batch, len(self.scores), n, n)  # query times key is then the score itself
        value = self.v_proj(hidden).view(batch, n, -1, 4).transpose(1, 2)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        output, attention = attend(self, query, key, value, mask, scaling=1.0)
        return hidden + self.o_proj(output.reshape(batch, n, -1)), attention


class PlantedModel(PreTrainedModel):
    """One layer for each list of heads; sees what the configuration lets it see, like any other model."""

    config_class = PlantedConfig
    _supports_sdpa = True

    def __init__(self, config: PlantedConfig, layers: Sequence[Sequence[Scores]]) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.layers = nn.ModuleList([PlantedAttention(config, heads) for heads in layers])
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids, attention_mask=None, output_attentions: bool = False, **_) -> BaseModelOutput:
        hidden, maps, n = self.embed(input_ids), (), input_ids.shape[1]
        gap = torch.arange(n)[:, None] - torch.arange(n)
        visible = torch.ones(n, n, dtype=torch.bool) if not self.config.causal else gap >= 0
        if self.config.window is not None:
            visible = visible & (gap.abs() < self.config.window)
        mask = torch.zeros(len(input_ids), 1, n, n).masked_fill_(~visible, torch.finfo(torch.float32).min)
        if attention_mask is not None:
            mask = mask.masked_fill(attention_mask[:, None, None] == 0, torch.finfo(torch.float32).min)
        for layer in self.layers:
            hidden, attention = layer(hidden, input_ids, mask)
            maps += (attention,)
        maps = maps if output_attentions and self.config._attn_implementation == "eager" else None
        return BaseModelOutput(last_hidden_state=hidden, attentions=maps)


def planted(*layers: Sequence[Scores], causal: bool, window: int | None = None) -> PlantedModel:
    """A model with these heads; causal = decoder; a query sees `window` keys back (and ahead, where not causal)."""
    torch.manual_seed(0)
    return PlantedModel(PlantedConfig(causal=causal, window=window), layers).eval()


def texts_of(length: int, n: int = 4, *, separators: bool = False):
    """One batch of random texts, all of that length."""
    from tests.support.reference import random_text

    return [make_batch([random_text(length, seed, separators=separators, first=False) for seed in range(n)])]
