"""Every column of the head table against maps from eager attention and plain loops, family by family."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from headlab.attention.heads import Heads
from headlab.attention.reach.views import OWN_EAGER
from headlab.models.texts.batch import Batch
from tests.support.reference import STATISTICS, Pool, eager_maps, head_norms, head_pool, sample_batches
from tests.support.tiny_models import FAMILIES, tiny_model

COLUMNS = [name + suffix for name in (*STATISTICS, "output_norm") for suffix in ("", "_words")]
CHANCES = {
    "previous_token": "prev_mass",
    "next_token": "next_mass",
    "self": "self_mass",
    "separator": "separator_mass",
    "sink": "first_mass",
}


def reference_pool(model, name, batches) -> Pool:
    pairs = [(batch, eager_maps(model, batch, name)) for batch in batches]
    return head_pool(pairs, windows=FAMILIES[name].windows, norms=[head_norms(model, b, name) for b in batches])


def assert_table_equals(table: pd.DataFrame, pool: Pool, columns=tuple(COLUMNS), tolerance: float = 1e-4) -> None:
    wrong = []
    for kind, layer, head in table.index:
        for column in columns:
            mine, slow = table.loc[(kind, layer, head), column], pool.mean(((kind, layer), head, column))
            if math.isnan(slow) != bool(np.isnan(mine)) or abs(mine - slow) > tolerance * max(1, abs(slow)):
                wrong.append(f"{kind} {layer} {head} {column}: {mine} instead of {slow}")
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("pad_side", ["right", "left"])
@pytest.mark.parametrize("name", FAMILIES)
def test_all_columns_equal_loops_over_eager_maps(name: str, pad_side: str) -> None:
    model = tiny_model(name)
    batches = sample_batches(name, pad_side)
    table = Heads(model).observe(batches, labels=list(CHANCES))
    pool = reference_pool(model, name, batches)
    assert set(table.index) == {(*key, h) for key, h, s in pool.total if s == "entropy" and h != "chance"}
    assert_table_equals(table, pool)
    for kind, layer, head in table.index:
        row, key = table.loc[(kind, layer, head)], (kind, layer)
        assert row["n_queries"] == pool.count[key, head, "entropy"]
        for label, statistic in CHANCES.items():
            place = (key, head, statistic)
            assert row[f"{label}_n"] == pool.count.get(place, 0)
            np.testing.assert_allclose(row[f"{label}_score"], pool.mean(place), atol=1e-4)
            np.testing.assert_allclose(row[f"{label}_null"], pool.mean((key, "chance", statistic)), atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tiny_models_are_worth_comparing(name: str) -> None:
    """Near uniform attention would make every engine look right; these heads differ from it and from each other."""
    table = Heads(tiny_model(name)).observe(sample_batches(name))
    assert table["entropy_norm"].min() < 0.9
    assert table["entropy"].std() > 0.02
    assert table["output_norm"].min() > 0.01


@pytest.mark.parametrize("name", FAMILIES)
def test_headlabs_own_arithmetic_does_for_all_of_them(name: str) -> None:
    """Falling back on the model's eager function is right but slower; none of these families needs it."""
    assert not Heads(tiny_model(name)).view.own_eager


def test_unpadded_texts_take_the_path_without_a_mask() -> None:
    for name in ("bert", "llama", "gpt2", "t5"):
        model = tiny_model(name)
        batches = sample_batches(name, lengths=(8, 8, 8))
        assert_table_equals(Heads(model).observe(batches), reference_pool(model, name, batches))


@pytest.mark.parametrize("name", ["llama", "bert", "gemma2"])
def test_texts_of_several_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 queries: statistics at the seams of blocks, offsets that reach into the block before."""
    from headlab.attention.reach import blocks as streaming

    monkeypatch.setattr(streaming, "BLOCK_BYTES", 1)
    model = tiny_model(name)
    batches = sample_batches(name, lengths=(40, 37, 5))
    assert_table_equals(Heads(model).observe(batches), reference_pool(model, name, batches))


@pytest.mark.parametrize("name", ["bert", "llama", "gpt_oss"])
def test_statistics_hold_under_the_models_own_eager_function(name: str) -> None:
    """The path for models whose arithmetic headlab does not know gives the same table as its own arithmetic."""
    heads = Heads(tiny_model(name))
    batches = sample_batches(name, "left")
    ours = heads.observe(batches)
    heads.subject = dataclasses.replace(heads.subject, view=OWN_EAGER)
    theirs = heads.observe(batches)
    pd.testing.assert_frame_equal(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_learned_sink_logit_takes_its_mass() -> None:
    table = Heads(tiny_model("gpt_oss")).observe(sample_batches("gpt_oss"))
    assert (table["sink_logit_mass"] > 0.01).all()
    others = Heads(tiny_model("llama")).observe(sample_batches("llama"))
    assert others["sink_logit_mass"].abs().max() < 1e-5


def test_chosen_statistics_alone() -> None:
    heads, batches = Heads(tiny_model("bert")), sample_batches("bert")
    table = heads.observe(batches, statistics=["entropy", "output_norm"])
    kept = {"entropy", "output_norm", "entropy_words", "output_norm_words"}
    assert set(table.columns) == kept | {"kv_group", "n_queries"}
    pd.testing.assert_frame_equal(table, heads.observe(batches)[table.columns])


def test_key_value_groups() -> None:
    groups = Heads(tiny_model("llama")).kv_groups
    assert groups.tolist() == [0, 0, 1, 1] * 2
    assert Heads(tiny_model("bert")).kv_groups.tolist() == [0, 1, 2, 3] * 2


def test_a_bare_model_gives_the_same_table_as_with_its_head() -> None:
    model, batches = tiny_model("llama"), sample_batches("llama")
    pd.testing.assert_frame_equal(Heads(model).observe(batches), Heads(model.base_model).observe(batches))


@pytest.mark.parametrize("name", ["bert", "llama", "gpt_oss"])
def test_half_precision_is_close_to_single_precision(name: str) -> None:

    batches = sample_batches(name)
    single = Heads(tiny_model(name)).observe(batches)
    half = Heads(tiny_model(name).half()).observe(batches)
    pd.testing.assert_frame_equal(single, half, atol=1e-2, rtol=1e-2)
    assert not single.equals(half)


def test_texts_without_ids_are_numbered_in_their_order() -> None:
    heads, batches = Heads(tiny_model("bert")), sample_batches("bert")
    labels = ["positional", "sink"]
    unnumbered = [Batch(batch.inputs, batch.source) for batch in batches]
    pd.testing.assert_frame_equal(heads.observe(batches, labels=labels), heads.observe(unnumbered, labels=labels))
