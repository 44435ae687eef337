"""Heads of tiny models with random weights, texts of random tokens, and a task over them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from headlab import Batch, Heads, Tokens
from headlab.base.errors import unknown_name
from headlab.testing.tiny.models import tiny_model

SPECIAL, SEPARATOR, FIRST_WORD, LAST_WORD = 3, 4, 5, 40  # token ids


def example_heads(model_type: str = "llama") -> Heads:
    """The heads of a tiny model of that type; `llama` looks back only, `bert` both ways."""
    return Heads(tiny_model(model_type))


def random_texts(n: int = 4, seed: int = 0) -> list[list[int]]:
    """Texts of 6 to 12 tokens: a special one, words, a separator, words."""
    draw = np.random.default_rng(seed)
    sizes = [6 + number % 7 for number in range(n)]
    texts = [[SPECIAL, *draw.integers(FIRST_WORD, LAST_WORD, size - 1).tolist()] for size in sizes]
    for text in texts:
        text[len(text) // 2] = SEPARATOR
    return texts


def text_batch(texts: Sequence[Sequence[int]], examples: Sequence[int] = (), padding: int = 0) -> Batch:
    """Texts as a batch, padded at the end to the longest and by `padding` tokens more."""
    longest = max(map(len, texts)) + padding
    ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    valid = torch.tensor([[place < len(text) for place in range(longest)] for text in texts])
    tokens = Tokens(ids, valid, (ids == SPECIAL) & valid, (ids == SEPARATOR) & valid)
    return Batch({"input_ids": ids, "attention_mask": valid.long()}, tokens, examples=tuple(examples))


class ExampleTask:
    """Predict the next token of random texts; what a score is checked with."""

    name = "example"
    title = "example"
    text = "Predicts the next token of random texts."
    definition = "mean of -ln p over the tokens of a text"
    source = "headlab"
    loss = "mean of -ln p over the tokens of a text, in nats"
    purpose = "causal-lm"
    metrics = ("loss",)
    demo_models = ()

    def __init__(self, model: nn.Module, n: int = 8, batch_size: int = 3) -> None:
        self.model = self.network = model
        self.texts, self.batch_size = random_texts(n), batch_size

    def split(self, name: str) -> np.ndarray:
        """Ids of the examples: even ones to select on, odd ones to report."""
        halves = {"all": slice(None), "select": slice(0, None, 2), "report": slice(1, None, 2)}
        if name not in halves:
            raise unknown_name("split", name, halves)
        return np.arange(len(self.texts))[halves[name]]

    def batches(self, split: str = "all", examples: Collection[int] | None = None) -> Iterator[Batch]:
        """The split's texts in batches."""
        chosen = [int(i) for i in self.split(split) if examples is None or i in set(examples)]
        for start in range(0, len(chosen), self.batch_size):
            ids = chosen[start : start + self.batch_size]
            yield text_batch([self.texts[i] for i in ids], ids)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean of -ln p over the tokens of each text, (examples,)."""
        logits = model(**batch.inputs).logits
        right, counted = batch.source.ids[:, 1:], batch.source.valid[:, 1:]
        loss = functional.cross_entropy(logits[:, :-1].transpose(1, 2), right, reduction="none")
        return (loss * counted).sum(1) / counted.sum(1)

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Columns `loss` and `examples`."""
        losses = self.losses(model, batch)
        return {"loss": losses, "examples": torch.ones_like(losses)}

    def signature(self) -> dict[str, Any]:
        """What the numbers depend on."""
        return {"task": self.name, "n": len(self.texts)}
