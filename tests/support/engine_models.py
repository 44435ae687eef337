"""Tiny random transformers with a task each, so that scores and sweeps run on the real engine in a second."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch.nn import functional
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertForSequenceClassification

from headlab.attention.heads import Heads
from headlab.models.texts.batch import Batch, Tokens


def tokens(ids: torch.Tensor, valid: torch.Tensor) -> Tokens:
    none = torch.zeros_like(valid)
    return Tokens(ids, valid, none, none)


@dataclass
class Measured:
    examples: pd.DataFrame


class RandomTask:
    """Texts of random tokens (the last of them padding) with random labels or target tokens."""

    metrics = ("accuracy", "loss")
    n_batches = 3

    def __init__(self, model: torch.nn.Module, n: int = 24) -> None:
        self.model = model
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(5, 60, (n, 9), generator=generator)
        self.valid = torch.arange(9) < torch.randint(4, 10, (n, 1), generator=generator)
        self.target = torch.randint(5, 60, (n, 6), generator=generator)
        self.n = n

    def split(self, name: str) -> np.ndarray:
        return {"all": np.arange(self.n), "select": np.arange(0, self.n, 2), "report": np.arange(1, self.n, 2)}[name]

    def keeping(self, folder, key) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def batches(self, split: str = "all"):
        for ids in np.array_split(self.split(split), self.n_batches):
            inputs = {"input_ids": self.ids[ids], "attention_mask": self.valid[ids].long()}
            source, target = tokens(self.ids[ids], self.valid[ids]), None
            if self.model.config.is_encoder_decoder:
                inputs["decoder_input_ids"] = self.target[ids]
                target = tokens(self.target[ids], torch.ones_like(self.target[ids], dtype=torch.bool))
            yield Batch(inputs, source, target, tuple(int(i) for i in ids), {"label": self.target[ids]})

    def _logits(self, model, batch: Batch) -> torch.Tensor:
        """(examples, predictions, classes)"""
        logits = model(**batch.inputs).logits
        return logits if logits.dim() == 3 else logits[:, None]

    def _labels(self, batch: Batch) -> torch.Tensor:
        label = batch.extra["label"]
        return label.roll(-1, 1) if self.model.config.is_encoder_decoder else label[:, :1] % 2

    def losses(self, model, batch: Batch) -> torch.Tensor:
        logits, labels = self._logits(model, batch), self._labels(batch)
        return functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(dim=1)

    def evaluate(self, split: str = "all", progress=None) -> Measured:
        rows = []
        with torch.no_grad():
            for batch in self.batches(split):
                right = (self._logits(self.model, batch).argmax(-1) == self._labels(batch)).double().mean(dim=1)
                columns = {"correct": right, "examples": 1.0, "loss": self.losses(self.model, batch).double()}
                rows.append(pd.DataFrame(columns, index=batch.examples))
        return Measured(pd.concat(rows).sort_index())

    def signature(self) -> dict:
        return {"task": "random", "n": self.n, "model": type(self.model).__name__}


def tiny_bert() -> tuple[Heads, RandomTask]:
    """2 layers of 4 heads and 2 classes; weights large enough for heads to matter."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
        initializer_range=0.4,
    )
    model = BertForSequenceClassification(config).eval()
    return Heads(model), RandomTask(model)


def tiny_bart() -> tuple[Heads, RandomTask]:
    """2 encoder and 1 decoder layers of 2 heads: encoder, decoder and cross-attention."""
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=60,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=32,
        init_std=0.4,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=2,
    )
    model = BartForConditionalGeneration(config).eval()
    return Heads(model), RandomTask(model, n=12)
