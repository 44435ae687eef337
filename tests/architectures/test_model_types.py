"""A sample of model types, one of each kind of specialty, examined as scripts/experiments/architectures does."""

from __future__ import annotations

import warnings

import pytest
import torch
from transformers.utils import logging

from scripts.experiments.architectures.examine import examine

SPECIALTIES = {
    "albert": "one module called once per layer",
    "bart": "encoder, decoder and cross-attention",
    "bert": "plain encoder",
    "bloom": "bypasses the interface; ALiBi",
    "deberta-v2": "bypasses the interface; disentangled attention",
    "deepseek_v3": "latent attention",
    "deepseek_v32": "sparse indexer",
    "diffllama": "two maps per head",
    "distilbert": "plain encoder of its own file",
    "doge": "mask made from values",
    "encoder-decoder": "two models in one",
    "esm": "proteins",
    "falcon": "one key head; calls the stock function itself",
    "falcon_h1": "attention and state space side by side",
    "gemma2": "softcap and sliding windows",
    "gemma3_text": "sliding windows mixed with global layers",
    "gemma3n_text": "keys shared across layers",
    "gemma4_text": "head widths that differ by layer",
    "gpt2": "projections that are no nn.Linear",
    "gpt_bigcode": "one key head",
    "gpt_neo": "bypasses the interface; local and global layers",
    "gpt_neox": "fused queries, keys and values",
    "gpt_oss": "learned sink logits",
    "jamba": "hybrid with state space layers",
    "jetmoe": "mixture of experts in the projection",
    "laguna": "head counts that differ by layer",
    "llama": "plain decoder",
    "marian": "translation",
    "mixtral": "mixture of experts in the feed-forward layer",
    "modernbert": "local and global encoder layers",
    "mpnet": "bypasses the interface; relative positions",
    "olmo2": "norms of queries and keys over all heads",
    "qwen3": "norms of queries and keys by head",
    "qwen3_next": "linear attention, output gates",
    "t5": "position bias",
    "umt5": "position bias in every layer",
    "zamba": "attention modules shared by hybrid layers",
}
WITHOUT_SOFTMAX = ("fnet", "mamba", "rwkv")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=UserWarning)


def test_the_sample_holds_thirty_types() -> None:
    assert len(SPECIALTIES) + len(WITHOUT_SOFTMAX) >= 30


@pytest.mark.parametrize("model_type", SPECIALTIES, ids=str)
def test_every_head_is_seen_and_removable(model_type: str) -> None:
    row = examine(model_type, "lm")
    assert row["built"], row["reason"]
    assert not row["wrong"]
    assert row["outcome"] == "proven", row.get("reason") or row.get("unseen")
    assert row["heads"] > 0 and row["tier"] in (1, 2)
    if row["masked_layers"]:
        assert row["mask_effect"] > 1e-3


@pytest.mark.parametrize("model_type", WITHOUT_SOFTMAX)
def test_models_without_softmax_attention_are_refused(model_type: str) -> None:
    row = examine(model_type, "lm")
    assert row["built"] and row["softmaxes"] == 0
    assert row["outcome"] == "no softmax attention"
    assert row["reason"].startswith("UnsupportedModelError")
