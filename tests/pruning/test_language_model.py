"""Scores and sweeps through the language-model tasks, on a tiny random Llama with grouped keys and values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headlab.attention.heads import Heads
from headlab.base.masks import HeadMask
from headlab.pruning.orderings import order
from headlab.pruning.sweep import sweep
from headlab.runs.evaluations import read_evaluation
from headlab.scores import score
from headlab.tasks.lm import LanguageModelling
from headlab.tasks.minimal_pairs import MinimalPairs

WORDS = ["[UNK]", "</s>", *(f"w{number}" for number in range(40))]


@dataclass
class OpenedModel:
    """What a task uses of a checkpoint."""

    model: Any
    tokenizer: Any
    name: str = "tiny"
    max_length: int | None = 32
    is_encoder_decoder: bool = False

    def describe(self) -> dict[str, str]:
        return {"name": self.name}


def llama() -> OpenedModel:
    """2 layers of 4 query heads over 2 key-value heads; weights large enough for predictions to differ."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]", eos_token="</s>")
    return OpenedModel(LlamaForCausalLM(config).eval().double(), tokenizer)


def sentence(rng: np.random.Generator) -> str:
    return " ".join(f"w{number}" for number in rng.integers(0, 40, size=rng.integers(3, 9)))


@pytest.fixture(params=["minimal-pairs", "lm"])
def task(request: pytest.FixtureRequest, tmp_path: Path):
    rng = np.random.default_rng(0)
    if request.param == "lm":
        path = tmp_path / "text.txt"
        path.write_text("\n".join(sentence(rng) for _ in range(40)), encoding="utf-8")
        return LanguageModelling(llama(), data=str(path), max_length=16)
    path = tmp_path / "pairs.jsonl"
    pairs = [{"sentence_good": sentence(rng), "sentence_bad": sentence(rng)} for _ in range(20)]
    path.write_text("\n".join(json.dumps(pair) for pair in pairs), encoding="utf-8")
    return MinimalPairs(llama(), data=str(path))


def test_gradient_is_the_mean_size_per_example_not_per_row(task):
    heads = Heads(task.model)
    found = score("gradient", heads, task)
    assert len(found) == 8 and (found > 0).all()
    for _, layer, head in list(heads.index)[::3]:
        weight = heads.model.model.layers[layer].self_attn.o_proj.weight  # (hidden, heads * head_dim)
        original, losses = weight.detach().clone(), {}
        for factor in (1.002, 0.998):
            with torch.no_grad():
                weight[:, 8 * head : 8 * head + 8] = original[:, 8 * head : 8 * head + 8] * factor
                losses[factor] = torch.cat([task.losses(heads.model, batch) for batch in task.batches("select")])
                weight.copy_(original)
        slope = (losses[1.002] - losses[0.998]) / 4e-3  # a coarse step: the loss is float32
        assert len(slope) == len(task.split("select"))
        assert found["decoder", layer, head] == pytest.approx(slope.abs().mean().item(), rel=1e-2)


def test_sweep_reports_the_metrics_that_the_task_itself_gives_under_the_mask(task, tmp_path):
    heads = Heads(task.model)
    ordering = order(score("ablation", heads, task), within="layer")
    table = sweep(heads, task, ordering, "0,50%", seeds=2, run=tmp_path / "run")
    assert set(table["metric"]) == set(task.metrics) and len(table) == 3 * 2 * len(task.metrics)
    assert set(table["n_examples"]) == {len(task.split("report"))} and set(table["kinds"]) == {"decoder"}
    for n_removed in (0, 4):
        rows = table[(table.strategy == "ablation") & (table.n_removed == n_removed)].set_index("metric")
        with heads.masked(HeadMask.removing(ordering[:n_removed], like=heads)):
            by_hand = task.evaluate("report")
        for name, value in by_hand.values.items():
            assert rows.loc[name, "value"] == pytest.approx(value, rel=1e-9)
            assert rows.loc[name, "ci_low"] <= rows.loc[name, "drop"] <= rows.loc[name, "ci_high"]
        stored = read_evaluation(tmp_path / "run", rows["run"].iloc[0])
        np.testing.assert_allclose(stored.examples.to_numpy(), by_hand.examples.to_numpy(), rtol=1e-9)
