"""Scores and sweeps on the real engine, against edits of the weights by hand."""

from __future__ import annotations

import contextlib

import numpy as np
import pandas as pd
import pytest
import torch

from headlab.base.masks import HeadId, HeadMask
from headlab.pruning.orderings import order
from headlab.pruning.sweep import sweep
from headlab.scores import score
from tests.support.engine_models import tiny_bart, tiny_bert


@contextlib.contextmanager
def scaled(model, removed, factor: float = 0.0):
    """BERT with the heads' columns of the output projection multiplied by a factor."""
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for _, layer, head in removed:
            weight = model.bert.encoder.layer[layer].attention.output.dense.weight  # (hidden, heads * head_dim)
            weight[:, 8 * head : 8 * head + 8] *= factor
    yield
    model.load_state_dict(saved)


def mean_loss(task, split: str) -> float:
    return task.evaluate(split).examples["loss"].mean()


def test_ablation_equals_zeroing_the_heads_columns():
    heads, task = tiny_bert()
    found = score("ablation", heads, task)
    whole = mean_loss(task, "select")
    for head in heads.index:
        with scaled(heads.model, [head]):
            assert found[head] == pytest.approx(mean_loss(task, "select") - whole, abs=1e-5)
    assert found.abs().max() > 0.01


def test_gradient_equals_the_finite_difference_of_the_weights():
    heads, task = tiny_bert()
    heads.model.double()
    found = score("gradient", heads, task)
    for head in heads.index:
        with scaled(heads.model, [head], 1.0001):
            up = task.evaluate("select").examples["loss"]
        with scaled(heads.model, [head], 0.9999):
            down = task.evaluate("select").examples["loss"]
        assert found[head] == pytest.approx(((up - down) / 2e-4).abs().mean(), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("within", ["model", "layer"])
def test_sweep_values_equal_edited_weights(within, tmp_path):
    heads, task = tiny_bert()
    before = {name: value.clone() for name, value in heads.model.state_dict().items()}
    ordering = order(score("gradient", heads, task), within=within)
    table = sweep(heads, task, ordering, "25%,4,100%", run=tmp_path, seeds=2)
    rows = table[(table.strategy == "gradient") & (table.metric == "loss")]
    assert rows["n_removed"].tolist() == [0, 2, 4, 8]
    for _, row in rows.iterrows():
        with scaled(heads.model, ordering[: row["n_removed"]]):
            assert row["value"] == pytest.approx(mean_loss(task, "report"), abs=1e-5)
    again = sweep(heads, task, ordering, "25%,4,100%", run=tmp_path, seeds=2)
    pd.testing.assert_frame_equal(again, table)
    assert all(torch.equal(value, before[name]) for name, value in heads.model.state_dict().items())


def test_zero_and_mean_ablation_differ_and_say_so():
    heads, task = tiny_bert()
    ordering = order(score("ablation", heads, task, ablation="mean"))
    zero, mean = (sweep(heads, task, ordering, [4], ablation=name, seeds=1) for name in ("zero", "mean"))
    assert set(zero["ablation"]) == {"zero"} and set(mean["ablation"]) == {"mean"}
    assert zero["baseline"].equals(mean["baseline"])
    assert not np.allclose(zero["value"], mean["value"])


def test_kinds_are_swept_alone_or_in_equal_shares():
    heads, task = tiny_bart()
    scores = score("ablation", heads, task)
    assert scores.index.get_level_values("kind").value_counts().to_dict() == {"encoder": 4, "decoder": 2, "cross": 2}
    cross, shared = order(scores, kinds="cross", name="cross"), order(scores, "kind")
    table = sweep(heads, task, cross, ["50%", 2], seeds=2)
    assert set(table["kinds"]) == {"cross"} and set(table["n_heads"]) == {2} and table["n_removed"].max() == 2
    assert sorted(head.kind for head in shared.cut("50%")) == ["cross", "decoder", "encoder", "encoder"]
    both = sweep(heads, task, [cross, order(scores)], ["50%"], seeds=2)
    assert set(both["kinds"]) == {"cross", "encoder+decoder+cross"}
    controls = both[both.strategy == "random"].groupby("kinds")["seed"].unique()
    assert {kinds: seeds.tolist() for kinds, seeds in controls.items()} == {
        "cross": [0, 1],
        "encoder+decoder+cross": [0, 1],
    }
    assert isinstance(cross[0], HeadId)


def test_resampled_outputs_are_those_of_the_sweeps_seed_also_from_its_folder(tmp_path):
    heads, task = tiny_bert()
    ordering = order(score("gradient", heads, task))
    first, second = (
        sweep(heads, task, ordering, [4], ablation="resample", seeds=1, seed=seed, run=tmp_path) for seed in (1, 2)
    )
    for seed, table in ((1, first), (2, second)):
        row = table[(table.strategy == "gradient") & (table.n_removed == 4) & (table.metric == "loss")].iloc[0]
        means = heads.replacements("resample", task.batches("select"), seed=seed)
        with heads.masked(HeadMask.removing(ordering[:4], like=heads), "resample", means):
            assert row["value"] == pytest.approx(mean_loss(task, "report"), abs=1e-6)
    assert first["value"].iloc[-1] != second["value"].iloc[-1]
