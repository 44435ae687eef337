"""Tiny random checkpoints, saved as transformers saves real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

WORDS = "the cat sat on a mat and dog ran far away from house in rain . A B C".split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = {word: number for number, word in enumerate(SPECIAL + WORDS + ["The"])}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def word_tokenizer(*, framed: bool) -> PreTrainedTokenizerFast:
    """One token a word; with [CLS] and [SEP] around a text where `framed`."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if framed:
        ids = [("[CLS]", VOCABULARY["[CLS]"]), ("[SEP]", VOCABULARY["[SEP]"])]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
        names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    else:
        names = {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", **names)


def _saved(model, folder: Path, *, framed: bool) -> Path:
    model.save_pretrained(folder)
    word_tokenizer(framed=framed).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked language model that takes 12 tokens; its tokenizer adds [CLS] and [SEP]."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=12, **SIZES)
    return _saved(BertForMaskedLM(config), tmp_path_factory.mktemp("bert"), framed=True)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare BERT encoder, without a head for anything."""
    torch.manual_seed(0)
    return _saved(
        BertModel(BertConfig(vocab_size=len(VOCABULARY), **SIZES)), tmp_path_factory.mktemp("enc"), framed=True
    )


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal language model whose tokenizer adds nothing."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(VOCABULARY), num_key_value_heads=1, max_position_embeddings=64, **SIZES)
    return _saved(LlamaForCausalLM(config), tmp_path_factory.mktemp("llama"), framed=False)


@pytest.fixture(scope="session")
def bart_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sequence-to-sequence model."""
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=len(VOCABULARY),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=3,
    )
    return _saved(BartForConditionalGeneration(config), tmp_path_factory.mktemp("bart"), framed=True)
