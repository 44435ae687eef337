"""Heads that are known in real checkpoints are found, and random weights carry no label but broad."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from headlab.attention.heads import Heads
from headlab.labels import default_labels, load_labels
from headlab.labels.syntactic import Treebank
from headlab.models import Checkpoint, open_model
from headlab.models.demo.texts import demo_prose
from headlab.models.random_weights import random_weights
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.encoding import text_batches

TEXTS = [sentence + "." for paragraph in demo_prose() for sentence in paragraph.split(". ")][:60]


@pytest.mark.demo
@pytest.mark.slow
def test_smollm2() -> None:
    """On two copies of 50 random tokens L18H6 has about .9 of its mass after the earlier occurrence."""
    checkpoint = open_model("demo:smollm2", purpose="lm")
    heads = Heads(checkpoint)
    table = heads.observe(text_batches(checkpoint, TEXTS[:20]), labels=["induction", "retrieval", "previous_token"])
    assert table["induction_score"].idxmax() == ("decoder", 18, 6)
    assert table["induction_score"].max() == pytest.approx(0.92, abs=0.04)
    assert table.loc[("decoder", 16, 0), "previous_token"]
    assert table.loc[("decoder", 18, 6), "retrieval"]  # who finds a needle also continues a pattern


@pytest.mark.demo
def test_minilm_looks_at_cls_and_not_at_separators() -> None:
    checkpoint = open_model("demo:minilm")
    table = Heads(checkpoint).observe(text_batches(checkpoint, TEXTS), labels=["cls", "separator", "positional_argmax"])
    assert table.loc[("encoder", 2, 9), "cls"]
    assert not table["separator"].any()
    assert table.loc[("encoder", 0, 2), "positional_argmax"]
    # Weights are not contributions: far less of what the head moves comes from [CLS].
    row = table.loc[("encoder", 2, 9)]
    assert row["cls_norm_share"] < 0.6 * row["cls_score"]


@pytest.mark.demo
@pytest.mark.data
@pytest.mark.slow
def test_the_taggers_determiner_head(data_folder: Path) -> None:
    """UD English dev: one head of the tagger joins determiners and nouns far above the best fixed offset."""
    checkpoint = open_model("demo:distilbert-tagger")
    treebank = Treebank(str(data_folder / "ud" / "en_ewt-dev.conllu"), limit=400)
    labels = load_labels(["syntactic:det:dependent-head"], conllu=treebank)
    name = labels[0].name
    table = Heads(checkpoint).observe(text_batches(checkpoint, TEXTS[:4]), labels=labels)
    best = table.loc[table[f"{name}_select"].idxmax()]
    assert best[f"{name}_score"] == pytest.approx(0.87, abs=0.04)
    assert best[f"{name}_null"] < 0.7 < best[f"{name}_low"]
    assert best[name]


def random_model(kind: str, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    sizes = {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    if kind == "decoder":
        return LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2, intermediate_size=256)).eval()
    return BertModel(BertConfig(**sizes, intermediate_size=256)).eval()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_random_weights_carry_no_label_but_broad(kind: str) -> None:
    found: list[str] = []
    for seed in range(20):
        model = random_model(kind, seed)
        ids = torch.randint(5, 1000, (8, 64))
        ids[:, 0], ids[:, -1] = 2, 3
        special = torch.zeros_like(ids, dtype=torch.bool)
        special[:, [0, -1]] = True
        tokens = Tokens(ids, torch.ones_like(special), special, ids == 3)
        batch = Batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, tokens, examples=tuple(range(8)))
        labels = [*default_labels(), "induction", "duplicate_token", "copying"]
        found += Heads(model).observe([batch], labels=labels)["labels"].tolist()
    allowed = sum(labels in ("broad", "none") for labels in found)
    assert allowed >= 0.95 * len(found)


def test_random_weights_leave_the_callers_random_state_alone() -> None:
    checkpoint = Checkpoint("tiny", random_model("decoder", 0))
    state = torch.get_rng_state()
    first, again = random_weights(checkpoint, seed=3), random_weights(checkpoint, seed=3)
    assert torch.equal(state, torch.get_rng_state())
    weights = [each.model.lm_head.weight for each in (checkpoint, first, again)]
    assert torch.equal(weights[1], weights[2]) and not torch.equal(weights[0], weights[1])
    assert first.revision == "random:3" and first.tokenizer is checkpoint.tokenizer
