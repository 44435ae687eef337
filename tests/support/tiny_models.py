"""Tiny random models of many families, with weights large enough that their heads do not all look everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig

VOCABULARY = 60
PAD, FIRST, SEPARATOR, WORDS = 0, 1, 3, 5  # ids from WORDS on are words

_TOKENS: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "bos_token_id": FIRST, "eos_token_id": 2}
_STACK = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_TWO_STACKS = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "decoder_start_token_id": 2,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SLIDING_FIRST = {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention"],
}


@dataclass(frozen=True)
class Family:
    """How a family is built, and what a reader of its source knows about it: never asked of headlab."""

    model_class: str
    settings: dict[str, Any]
    causal: bool
    projection: str  # regular expression of the output projections' names, in the order in which they run
    layers: tuple[int, ...] = (0, 1)
    windows: dict[int, int] = field(default_factory=dict)  # layer -> how many keys back a query sees
    shared_calls: int = 1  # how often one projection is called in one pass
    transposed: bool = False  # weight is (in, out)

    @property
    def two_stacks(self) -> bool:
        return "ConditionalGeneration" in self.model_class or "MTModel" in self.model_class


BERT_PROJECTION = r"layer\.\d+\.attention\.output\.dense$"
LLAMA_PROJECTION = r"self_attn\.o_proj$"
BART_PROJECTION = r"(self_attn|encoder_attn)\.out_proj$"

FAMILIES = {
    "bert": Family("BertForMaskedLM", _STACK, False, BERT_PROJECTION),
    "roberta": Family("RobertaForMaskedLM", _STACK, False, BERT_PROJECTION),
    "distilbert": Family(
        "DistilBertForMaskedLM", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}, False, r"out_lin$"
    ),
    "albert": Family(
        "AlbertForMaskedLM", {**_STACK, "embedding_size": 16}, False, r"attention\.dense$", shared_calls=2
    ),
    "gpt2": Family(
        "GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4}, True, r"attn\.c_proj$", transposed=True
    ),
    "opt": Family(
        "OPTForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "word_embed_proj_dim": 32},
        True,
        r"self_attn\.out_proj$",
    ),
    "gpt_neox": Family("GPTNeoXForCausalLM", _STACK, True, r"attention\.dense$"),
    "llama": Family("LlamaForCausalLM", {**_STACK, "num_key_value_heads": 2}, True, LLAMA_PROJECTION),
    "deepseek_v3": Family(
        "DeepseekV3ForCausalLM",
        {
            **_STACK,
            **_EXPERTS,
            "num_key_value_heads": 4,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 12,
            "head_dim": 4,
        },
        True,
        LLAMA_PROJECTION,
    ),
    "qwen3_next": Family(
        "Qwen3NextForCausalLM",
        {
            **_STACK,
            **_EXPERTS,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "num_experts": 4,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_value_heads": 2,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "shared_expert_intermediate_size": 16,
        },
        True,
        LLAMA_PROJECTION,
        layers=(1,),
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        {**_STACK, **_SLIDING_FIRST, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0},
        True,
        LLAMA_PROJECTION,
        windows={0: 4},
    ),
    "gpt_oss": Family(
        "GptOssForCausalLM",
        {**_STACK, **_SLIDING_FIRST, "num_local_experts": 4, "num_experts_per_tok": 2},
        True,
        LLAMA_PROJECTION,
        windows={0: 4},
    ),
    "t5": Family(
        "T5ForConditionalGeneration",
        {"d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
        False,
        r"(SelfAttention|EncDecAttention)\.o$",
    ),
    "bart": Family("BartForConditionalGeneration", _TWO_STACKS, False, BART_PROJECTION),
    "marian": Family("MarianMTModel", _TWO_STACKS, False, BART_PROJECTION),
}

# The same for the demo checkpoints, whose settings are their own.
CHECKPOINTS = {
    "minilm": Family("", {}, False, BERT_PROJECTION, layers=tuple(range(6))),
    "distilbert-tagger": Family("", {}, False, r"out_lin$", layers=tuple(range(6))),
    "smollm2": Family("", {}, True, LLAMA_PROJECTION, layers=tuple(range(30))),
}

BYPASSING = {"mpnet": ("MPNetForMaskedLM", _STACK)}  # runs its own attention, never transformers' interface


def family_of(name: str) -> Family:
    """What is known about a family or a demo checkpoint."""
    return FAMILIES[name] if name in FAMILIES else CHECKPOINTS[name]


def tiny_model(name: str, *, seed: int = 0, bare: bool = False, **settings: Any) -> nn.Module:
    """A random model of the family, in evaluation mode; `bare` leaves the language-model head away."""
    model_class, fixed = (FAMILIES[name].model_class, FAMILIES[name].settings) if name in FAMILIES else BYPASSING[name]
    config = AutoConfig.for_model(name, **{**_TOKENS, **fixed, **settings})
    torch.manual_seed(seed)
    model = getattr(transformers, model_class)(config).eval()
    _enlarge(model, seed)
    return model.base_model if bare else model


def _enlarge(model: nn.Module, seed: int) -> None:
    """Weights of unit gain and more, biases that are not zero: attention is then far from uniform."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad or name.endswith(("A_log", "dt_bias", "conv1d.weight")):
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("sinks"):
                parameter.copy_(noise)
            elif parameter.dim() < 2:
                parameter.add_(0.2 * noise)
            elif "embed" in name or re.search(r"\bw[tp]e\b|shared", name):
                parameter.copy_(noise)
            else:
                parameter.copy_(1.5 * noise * parameter.shape[-1] ** -0.5)


def projections(model: nn.Module, name: str) -> dict[tuple[str, int], tuple[nn.Module, int]]:
    """The output projection of each (kind, layer) and which of its calls is meant, by the family's module names."""
    family = family_of(name)
    found: dict[tuple[str, int], tuple[nn.Module, int]] = {}
    count: dict[str, int] = {}
    for module_name, module in model.named_modules():
        if not re.search(family.projection, module_name):
            continue
        for call in range(family.shared_calls):
            if re.search(r"encoder_attn|EncDecAttention", module_name):
                kind = "cross"
            elif family.two_stacks:
                kind = "encoder" if module_name.split(".decoder.")[0] == module_name.split("decoder.")[0] else "decoder"
            else:
                kind = "decoder" if family.causal else "encoder"
            place = count.get(kind, 0)
            count[kind] = place + 1
            found[kind, family.layers[place]] = (module, call)
    return found


def rows_of_head(model: nn.Module, name: str, module: nn.Module, head: int, n_heads: int = 4) -> torch.Tensor:
    """The view of a projection's weight that reads one head: (value_dim, out), sharing memory with the weight."""
    weight = module.weight if family_of(name).transposed else module.weight.T
    width = weight.shape[0] // n_heads
    return weight[head * width : (head + 1) * width]
