"""Tiny random models of three shapes with a task each: a decoder with shared keys, a classifier, an encoder-decoder."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification

from headlab.attention.heads import Heads
from headlab.models.texts.batch import Batch
from tests.support.reference import make_batch, random_text
from tests.support.tiny_models import _enlarge, tiny_model

SHAPES = ("decoder", "classifier", "encoder-decoder")


class TinyTask:
    """Random texts, the first token special; loss of the next token, or of a class by the text's first word."""

    name = "tiny"

    def __init__(self, model: nn.Module, n: int = 10, batch_size: int = 3) -> None:
        self.model, self.n, self.batch_size = model, n, batch_size
        self.texts = [random_text(4 + i % 5, 100 + i, separators=False) for i in range(n)]
        self.targets = [random_text(3 + i % 3, 200 + i, separators=False) for i in range(n)]
        self.passes = 0
        model.register_forward_hook(self._count)

    def _count(self, *_: object) -> None:
        self.passes += 1

    @property
    def two_stacks(self) -> bool:
        return bool(self.model.config.is_encoder_decoder)

    def split(self, name: str) -> np.ndarray:
        return {"all": np.arange(self.n), "select": np.arange(0, self.n, 2), "report": np.arange(1, self.n, 2)}[name]

    def batches(self, split: str = "all") -> Iterator[Batch]:
        chosen = self.split(split).tolist()
        for start in range(0, len(chosen), self.batch_size):
            yield self.batch(chosen[start : start + self.batch_size])

    def batch(self, ids: list[int]) -> Batch:
        made = make_batch([self.texts[i] for i in ids], [self.targets[i] for i in ids] if self.two_stacks else None)
        return Batch(made.inputs, made.source, made.target, tuple(ids))

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = model(**batch.inputs).logits
        if logits.dim() == 2:
            return functional.cross_entropy(logits, batch.source.ids[:, 1] % 2, reduction="none")
        tokens = batch.target or batch.source
        right, counted = tokens.ids[:, 1:], tokens.valid[:, 1:]
        loss = functional.cross_entropy(logits[:, :-1].transpose(1, 2), right, reduction="none")
        return (loss * counted).sum(1) / counted.sum(1)

    def signature(self) -> dict:
        return {"task": self.name, "n": self.n}


def tiny(shape: str, **options: int) -> tuple[Heads, TinyTask]:
    """Heads and task of one of SHAPES."""
    if shape == "classifier":
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=60,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=32,
        )
        model: nn.Module = BertForSequenceClassification(config).eval()
        _enlarge(model, 0)
    else:
        model = tiny_model("llama") if shape == "decoder" else tiny_model("bart", encoder_layers=1, decoder_layers=1)
    return Heads(model), TinyTask(model, **options)
