"""Modules as people write them, that headlab knows nothing about, and batches for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headlab.models.texts.batch import Batch, Tokens

WIDTH, HEADS, VOCABULARY = 16, 4, 40


class OwnAttention(nn.Module):
    """Attention by hand; `weights` is a module through which they pass, `out` takes the heads side by side."""

    def __init__(self, *, causal: bool = False, tokens_first: bool = False) -> None:
        super().__init__()
        self.causal, self.tokens_first = causal, tokens_first
        self.query, self.memory = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.scores, self.weights = nn.Identity(), nn.Identity()
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor, valid: Tensor) -> Tensor:
        query, key, value = (
            t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (self.query(x), *self.memory(memory).chunk(2, -1))
        )
        visible = valid[:, None, None]
        if self.causal:
            visible = visible & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        scores = self.scores(query @ key.transpose(-1, -2)).masked_fill(~visible, -1e9)
        exponentials = (scores - scores.amax(-1, keepdim=True)).exp()  # no softmax that could be tapped
        attention = self.weights(exponentials / exponentials.sum(-1, keepdim=True))
        mixed = (attention @ value).transpose(1, 2).flatten(2)
        return x + (self.out(mixed.transpose(0, 1)).transpose(0, 1) if self.tokens_first else self.out(mixed))


class OwnEncoder(nn.Module):
    """Token ids to scores of tokens, through two attention layers of its own."""

    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(OwnAttention(**options) for _ in range(2))
        self.unused = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, x, valid)
        return self.head(x)


class OwnTranslator(nn.Module):
    """An encoder layer, and a decoder layer with self- and cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder, self.decoder, self.cross = OwnAttention(), OwnAttention(causal=True), OwnAttention()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, source: Tensor, source_valid: Tensor, target: Tensor, target_valid: Tensor) -> Tensor:
        x = self.embedding(source)
        memory = self.encoder(x, x, source_valid)
        y = self.embedding(target)
        y = self.decoder(y, y, target_valid)
        return self.head(self.cross(y, memory, source_valid))


def tokens(*lengths: int, seed: int = 0) -> Tokens:
    """Padded random texts of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    valid = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids = torch.randint(1, VOCABULARY, valid.shape, generator=generator) * valid
    nothing = torch.zeros_like(valid)
    return Tokens(ids, valid, nothing, nothing)


def encoder_batch(*lengths: int, seed: int = 0) -> Batch:
    """A batch for OwnEncoder."""
    source = tokens(*lengths, seed=seed)
    return Batch({"ids": source.ids, "valid": source.valid}, source, examples=tuple(range(len(lengths))))


def seeded(module_class: type[nn.Module], *arguments: object, **options: object) -> nn.Module:
    """A random module with weights large enough for attention that is not uniform, in evaluation mode."""
    torch.manual_seed(0)
    module = module_class(*arguments, **options).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2)
    return module
