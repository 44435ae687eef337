"""Tiny random models with a word-level tokenizer of their own, wrapped as checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from headlab.models.checkpoint import Checkpoint
from headlab.models.texts.special_tokens import adds

WORDS = [f"w{number}" for number in range(60)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<s>", "</s>"]


def checkpoint(model: Any, words: Any, purpose: str = "auto") -> Checkpoint:
    """A tiny checkpoint that takes 64 tokens."""
    return Checkpoint("tiny", model, words, "0", purpose, max_length=64, adds=adds(words))


def tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """`bert` adds [CLS] and [SEP], `bos` adds <s> before and </s> after, `bare` adds nothing and has no padding."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"bert": ("[CLS]", "[SEP]"), "bos": ("<s>", "</s>")}.get(kind)
    if names:
        first, last = names
        core.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}", special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])]
        )
    extra = {"bert": {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}}.get(kind, {})
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]", eos_token="</s>", **extra)


def _spread_out(model: Any) -> Any:
    """Random weights large enough for predictions to differ clearly."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    return model.eval()


def _llama() -> LlamaForCausalLM:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=66, **sizes, **heads))


def _gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=66, n_embd=32, n_layer=2, n_head=4, n_positions=64))


def bert_config(labels: int = 3) -> BertConfig:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return BertConfig(vocab_size=66, max_position_embeddings=64, num_labels=labels, **sizes)


@pytest.fixture(params=["llama-bare", "llama-bos", "gpt2-bare"])
def causal(request: pytest.FixtureRequest) -> Checkpoint:
    """A tiny causal language model, with and without special tokens around a text."""
    torch.manual_seed(1)
    family, kind = request.param.split("-")
    return checkpoint(_spread_out(_llama() if family == "llama" else _gpt2()), tokenizer(kind), purpose="causal-lm")


@pytest.fixture
def llama() -> Checkpoint:
    """A tiny Llama whose tokenizer adds nothing."""
    torch.manual_seed(1)
    return checkpoint(_spread_out(_llama()), tokenizer("bare"), purpose="causal-lm")


@pytest.fixture
def classifier() -> Checkpoint:
    """A tiny BERT with three labels: sad, glad, mixed."""
    torch.manual_seed(2)
    config = bert_config()
    config.id2label, config.label2id = {0: "sad", 1: "glad", 2: "mixed"}, {"sad": 0, "glad": 1, "mixed": 2}
    return checkpoint(_spread_out(BertForSequenceClassification(config)), tokenizer("bert"))


@pytest.fixture
def encoder() -> Checkpoint:
    """A tiny BERT without a head."""
    torch.manual_seed(3)
    return checkpoint(_spread_out(BertModel(bert_config())), tokenizer("bert"))


@pytest.fixture
def bidirectional() -> Checkpoint:
    """A language model that looks ahead."""
    from transformers import BertForMaskedLM

    torch.manual_seed(4)
    return checkpoint(_spread_out(BertForMaskedLM(bert_config())), tokenizer("bert"))


@pytest.fixture
def words() -> Callable[[int, int], str]:
    """A random sentence of n words, the same for the same seed."""

    def make(n: int, seed: int) -> str:
        generator = torch.Generator().manual_seed(seed)
        return " ".join(WORDS[place] for place in torch.randint(len(WORDS), (n,), generator=generator))

    return make
