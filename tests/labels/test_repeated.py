"""Labels on repeated random tokens: where they look, the score that can be reached, and models too small for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headlab.attention.heads import Heads
from headlab.attention.observe.observation import input_context
from headlab.labels.inputs.repeated import RepeatedTokens
from tests.support.planted_maps import FAR, everywhere, on_first, planted, texts_of
from tests.support.tiny_models import tiny_model

LABELS = ["induction", "duplicate_token", "copying"]


def after_earlier(ids: torch.Tensor) -> torch.Tensor:
    """Looks after the earlier occurrence of the query's token, else at the first token."""
    n = len(ids)
    found = torch.zeros(n, n)
    found[:, 0] = FAR
    for i in range(n):
        for j in range(i):
            if ids[j] == ids[i]:
                found[i, j + 1] = 2 * FAR
    return found


def on_earlier(ids: torch.Tensor) -> torch.Tensor:
    same = (ids[:, None] == ids).float()
    return FAR * (same - torch.eye(len(ids)))


@pytest.mark.parametrize("causal", [False, True])
def test_planted_induction_and_duplicate_heads(causal: bool) -> None:
    model = planted([after_earlier, on_earlier, everywhere, on_first], causal=causal)
    table = Heads(model).observe(texts_of(20), labels=LABELS)
    assert table["induction"].tolist() == [True, False, False, False]
    assert table["duplicate_token"].tolist() == [False, True, False, False]
    np.testing.assert_allclose(table["induction_score"].iloc[0], 1, atol=1e-5)
    np.testing.assert_allclose(table["duplicate_token_score"].iloc[1], 1, atol=1e-5)
    assert table["copying"].isna().all()  # no output embedding


def test_chance_is_a_uniform_head_in_the_second_copy() -> None:
    table = Heads(planted([everywhere], causal=True)).observe(texts_of(20), labels=["induction"])
    n = int(table["induction_n"].iloc[0]) // 10  # ten sequences
    expected = np.mean([1 / (i + 1) for i in range(n, 2 * n)])
    assert table["induction_score"].iloc[0] == pytest.approx(expected, abs=1e-5)
    assert table["induction_null"].iloc[0] == pytest.approx(expected, abs=1e-5)


def test_tokens_differ_within_a_copy_and_are_no_special_ones() -> None:
    heads = Heads(tiny_model("llama"))
    (batch,) = RepeatedTokens(period=8, texts=3).batches(input_context(heads.subject))
    ids = batch.source.ids
    assert ids.shape == (3, 16)
    assert (ids[:, :8] == ids[:, 8:]).all()
    assert all(len(set(row.tolist())) == 8 for row in ids)
    assert len({tuple(row.tolist()) for row in ids}) == 3


def test_labels_with_an_equal_input_share_one_pass() -> None:
    model = planted([after_earlier], causal=True)
    heads, passes = Heads(model), []
    hook = model.register_forward_hook(lambda *_: passes.append(1))
    try:
        heads.observe(texts_of(20), labels=LABELS)
    finally:
        hook.remove()
    assert len(passes) == 2  # the given texts, and one batch of repeated tokens


def test_copying_by_hand() -> None:
    """Each key's own share of what its value raises, against a plain loop over keys and heads."""
    model = tiny_model("llama")
    heads = Heads(model)
    (batch,) = RepeatedTokens().batches(input_context(heads.subject))
    table = heads.observe([batch], labels=["copying"])
    unembedding = (model.lm_head.weight * model.model.norm.weight).detach()
    values = {}
    hooks = [
        layer.self_attn.v_proj.register_forward_hook(lambda m, i, o, k=k: values.update({k: o.detach()}))
        for k, layer in enumerate(model.model.layers)
    ]
    with torch.no_grad():
        model(**batch.inputs)
    for hook in hooks:
        hook.remove()
    attention = model.model.layers[0].self_attn
    width = attention.head_dim
    n_heads = attention.o_proj.weight.shape[1] // width
    for head in range(n_heads):
        group = head // (n_heads // (values[0].shape[-1] // width))
        shares = []
        for row, ids in enumerate(batch.source.ids):
            tokens = sorted(set(ids.tolist()))
            for place, token in enumerate(ids.tolist()):
                value = values[0][row, place, group * width : (group + 1) * width]
                raised = unembedding[tokens] @ (attention.o_proj.weight[:, head * width : (head + 1) * width] @ value)
                raised = (raised - raised.mean()).clamp_min(0)
                shares.append((raised[tokens.index(token)] / raised.sum()).item())
        assert table["copying_score"].loc[("decoder", 0, head)] == pytest.approx(np.mean(shares), abs=1e-5)
