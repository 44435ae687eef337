"""Tiny random sequence-to-sequence models of several families, each with a tokenizer made on the spot."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    NllbTokenizer,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from headlab.models.checkpoint import Checkpoint, token_limit
from headlab.models.texts.special_tokens import adds

WORDS = [f"w{number}" for number in range(24)]
FAMILIES = ("marian", "bart", "t5", "nllb", "mbart")
SIZES = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def word_tokenizer(start: bool = False) -> PreTrainedTokenizerFast:
    """Words between blanks; `</s>` (and with `start`, `<s>`) around a text."""
    names = ["<pad>", "</s>", "<unk>", "<s>", *WORDS, "say:"]
    core = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>" if start else "$A </s>", special_tokens=[("</s>", 1), ("<s>", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", bos_token="<s>"
    )


def nllb_tokenizer() -> Any:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "w", *"0123456789"]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    return NllbTokenizer(
        vocab=vocabulary,
        merges=[],
        src_lang="eng_Latn",
        tgt_lang="por_Latn",
        additional_special_tokens=["eng_Latn", "por_Latn"],
    )


def mbart_tokenizer() -> Any:
    pieces = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")] + [(f"▁{word}", -1.0) for word in WORDS]
    return MBart50Tokenizer(vocab=pieces, src_lang="en_XX", tgt_lang="pt_XX")


def checkpoint(family: str, seed: int = 1) -> Checkpoint:
    """A checkpoint whose random weights are large enough for predictions to differ clearly."""
    torch.manual_seed(seed)
    makers = {
        "marian": lambda size: MarianMTModel(
            MarianConfig(**SIZES, vocab_size=size, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
        ),
        "bart": lambda size: BartForConditionalGeneration(
            BartConfig(
                **SIZES, vocab_size=size, pad_token_id=0, eos_token_id=1, bos_token_id=3, decoder_start_token_id=1
            )
        ),
        "t5": lambda size: T5ForConditionalGeneration(
            T5Config(
                vocab_size=size,
                d_model=16,
                d_kv=4,
                d_ff=24,
                num_layers=2,
                num_heads=4,
                pad_token_id=0,
                tie_word_embeddings=False,
                eos_token_id=1,
                decoder_start_token_id=0,
            )
        ),
        "nllb": lambda size: M2M100ForConditionalGeneration(
            M2M100Config(
                **SIZES, vocab_size=size, pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2
            )
        ),
        "mbart": lambda size: MBartForConditionalGeneration(
            MBartConfig(
                **SIZES, vocab_size=size, pad_token_id=1, eos_token_id=2, bos_token_id=0, decoder_start_token_id=2
            )
        ),
    }
    tokenizer = {"nllb": nllb_tokenizer, "mbart": mbart_tokenizer}.get(
        family, lambda: word_tokenizer(family == "bart")
    )()
    model = makers[family](len(tokenizer)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                across = "encoder_attn" in name or "EncDecAttention" in name  # so that the source matters
                parameter.mul_((1.5 if family == "t5" else 16) * (2 if across else 1))
    if family == "bart":
        model.generation_config.forced_bos_token_id = 3
    # As Marian's checkpoints forbid it: a model that makes padding confuses its own positions.
    model.generation_config.suppress_tokens = [model.config.pad_token_id]
    return Checkpoint(family, model, tokenizer, "0", "lm", token_limit(model, None), adds(tokenizer), True)
