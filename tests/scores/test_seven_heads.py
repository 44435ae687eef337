"""Scores of the seven planted heads against the published numbers, and numbers worked out with numpy alone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from headlab.base.errors import UnsupportedModelError, UsageError
from headlab.base.masks import HeadMask
from headlab.scores import score, standard_errors
from tests.support.planted_seven import HEADS, NAMES
from tests.support.planted_seven import planted as seven

BASE, PAIR, TOTAL = 0.0096, 0.1666, 1.587
ABLATION = (0.1014, 0.0011, 0.0011, 0.0, -0.0053, 0.0808, -0.0006)
GRADIENT = (0.0240, 0.0001, 0.0001, 0.0, 0.0077, 0.0288, 0.0024)
SHAPLEY = (0.489, 0.440, 0.440, 0.0, -0.176, 0.399, -0.005)
CURVES = {  # loss after removing 1 to 7 heads
    "gradient": (0.0096, 0.0107, 0.1763, 0.1678, 0.0789, 0.6931, 1.5966),
    "gradient_iterated": (0.0096, 0.0107, 0.0101, 0.1678, 0.0789, 0.6931, 1.5966),
    "greedy_ablation": (0.0043, 0.0041, 0.0041, 0.0045, 0.0453, 0.3876, 1.5966),
}


def by_name(scores: pd.Series) -> list[float]:
    return [scores[HEADS[name]] for name in NAMES]


def loss_by_hand(task, gates) -> np.ndarray:
    """Loss of every example from the formula, with numpy; gates (7,)."""
    y, eps = task.sign.numpy(), task.noise.numpy()
    g = dict(zip(NAMES, gates, strict=True))
    linear = 2.5 * y * g["useful"] - 0.8 * y * g["harmful"] + 0.3 * eps * g["noise"]
    z = linear + 3 * np.tanh(2 * (g["redA"] + g["redB"])) * y + 3 * g["const"] - 3
    return np.log1p(np.exp(-z * y))


def loss_without(heads, task, removed) -> float:
    with torch.no_grad(), heads.masked(HeadMask.removing(removed, like=heads)):
        return float(torch.cat([task.losses(heads.model, batch) for batch in task.batches("all")]).mean())


@pytest.fixture(scope="module")
def planted():
    return seven()


def test_the_module_is_the_formula_and_has_the_published_losses(planted):
    heads, task = planted
    assert heads.tier == 0 and heads.n_heads == 7
    assert loss_without(heads, task, []) == pytest.approx(BASE, abs=1e-4)
    pair = [HEADS["redA"], HEADS["redB"]]
    assert loss_without(heads, task, pair) - loss_without(heads, task, []) == pytest.approx(PAIR, abs=1e-4)
    for removed in ([], [0], [1, 2], [4, 6], range(7)):
        gates = [0.0 if place in removed else 1.0 for place in range(7)]
        found = loss_without(heads, task, [HEADS[NAMES[place]] for place in removed])
        assert found == pytest.approx(loss_by_hand(task, gates).mean(), rel=1e-9)


@pytest.mark.parametrize(("name", "expected"), [("ablation", ABLATION), ("gradient", GRADIENT), ("shapley", SHAPLEY)])
def test_scores_are_the_published_ones(planted, name, expected):
    found = score(name, *planted, split="all")
    assert by_name(found) == pytest.approx(expected, abs=1e-3)
    assert found[HEADS["dead"]] == 0
    if name != "gradient":
        assert found[HEADS["harmful"]] < 0


@pytest.mark.parametrize("name", CURVES)
def test_curves_are_the_published_ones(planted, name):
    heads, task = planted
    order = list(score(name, heads, task, split="all").sort_values(kind="stable").index)
    curve = [loss_without(heads, task, order[:n]) for n in range(1, 8)]
    assert curve == pytest.approx(CURVES[name], abs=1e-3)


def test_greedy_ablation_keeps_the_partner_of_the_redundant_pair(planted):
    steps = score("greedy_ablation", *planted, split="all")
    assert sorted(steps) == list(range(1, 8))
    order = sorted(NAMES, key=lambda name: steps[HEADS[name]])
    assert order == ["harmful", "noise", "dead", "redA", "const", "useful", "redB"]
    iterated = score("gradient_iterated", *planted, split="all")
    assert max(iterated[HEADS["redA"]], iterated[HEADS["redB"]]) == 4  # both are gone after four removals


def test_the_constant_head_is_free_under_mean_ablation(planted):
    zero = score("ablation", *planted, split="all")
    mean = score("ablation:mean", *planted, split="all")
    assert mean.name == "score_ablation:mean"
    assert mean[HEADS["const"]] == pytest.approx(0, abs=1e-7) and zero[HEADS["const"]] > 0.08
    assert mean[HEADS["useful"]] == pytest.approx(zero[HEADS["useful"]], abs=3e-3)  # its own mean is almost 0
    assert score("greedy_ablation:mean", *planted, split="all")[HEADS["const"]] < 5
    assert score("shapley:mean", *planted, split="all")[HEADS["const"]] == pytest.approx(0, abs=1e-6)


def test_gradient_equals_the_finite_difference_of_the_gate(planted):
    heads, task = planted
    found, signed = (score(name, heads, task, split="all") for name in ("gradient", "gradient_signed"))
    fisher = score("fisher", heads, task, split="all")
    for place, name in enumerate(NAMES):
        step = np.eye(7)[place] * 1e-4
        slope = (loss_by_hand(task, 1 + step) - loss_by_hand(task, 1 - step)) / 2e-4
        assert found[HEADS[name]] == pytest.approx(np.abs(slope).mean(), abs=1e-6)
        assert signed[HEADS[name]] == pytest.approx(-slope.mean(), abs=1e-6)
        assert fisher[HEADS[name]] == pytest.approx((slope**2).mean(), abs=1e-6)
        error = np.abs(slope).std(ddof=1) / 2000**0.5
        assert standard_errors(found)[HEADS[name]] == pytest.approx(error, abs=1e-6)
    assert signed[HEADS["harmful"]] < 0 < found[HEADS["harmful"]]


def test_one_token_per_text_makes_per_token_and_per_example_the_same(planted):
    per_example, per_token = (score(name, *planted, split="all") for name in ("gradient", "gradient:per-token"))
    pd.testing.assert_series_equal(per_example, per_token, check_names=False, rtol=1e-5)
    normalised = score("gradient:layer-normalised", *planted, split="all")
    assert (normalised**2).groupby(level="layer").sum().tolist() == pytest.approx([1, 1])
    norms = [np.linalg.norm(GRADIENT[:4])] * 4 + [np.linalg.norm(GRADIENT[4:])] * 3
    assert by_name(normalised) == pytest.approx(np.array(GRADIENT) / norms, abs=5e-3)


# ---- Shapley


def shapley_by_hand(task) -> np.ndarray:
    """Mean over all 5,040 orders of the rise of the loss at each head's removal."""
    value = {s: loss_by_hand(task, s).mean() for s in itertools.product((0.0, 1.0), repeat=7)}
    total = np.zeros(7)
    for order in itertools.permutations(range(7)):
        gates = [1.0] * 7
        for head in order:
            before = value[tuple(gates)]
            gates[head] = 0.0
            total[head] += value[tuple(gates)] - before
    return total / math.factorial(7)


def test_shapley_is_the_mean_over_all_orders_and_sums_to_the_total(planted):
    heads, task = planted
    found = score("shapley", heads, task, split="all")
    assert by_name(found) == pytest.approx(shapley_by_hand(task), abs=1e-9)
    assert found.sum() == pytest.approx(TOTAL, abs=1e-3)
    assert (standard_errors(found) == 0).all()


@pytest.mark.parametrize("truncation", [0.0, 0.05])
def test_random_orders_estimate_it_within_their_error_and_keep_the_sum(planted, truncation):
    heads, task = planted
    found = score(
        "shapley", heads, task, split="all", exact=False, permutations=3000, precision=0, seed=1, truncation=truncation
    )
    exact, error = score("shapley", heads, task, split="all"), standard_errors(found)
    assert found.sum() == pytest.approx(exact.sum(), abs=1e-9)  # efficiency
    assert (error[:3] > 0).all() and error.max() < 0.02
    if truncation == 0:
        assert ((found - exact).abs() <= 4 * error + 1e-12).all()
        assert found[HEADS["dead"]] == 0
    assert by_name(found) == pytest.approx(SHAPLEY, abs=0.04)


def test_shapley_stops_early_when_it_is_precise_enough(planted):
    calls = []
    found = score(
        "shapley",
        *planted,
        split="all",
        exact=False,
        permutations=500,
        precision=0.05,
        progress=lambda done, total, what: calls.append((done, total)),
    )
    assert 8 <= calls[-1][0] < 500
    assert standard_errors(found).max() <= 0.05 * TOTAL
    with pytest.raises(UsageError, match="at least 2"):
        score("shapley", *planted, permutations=1)


def test_relevance_of_the_sum_is_what_each_head_adds_to_the_logit(planted):
    """What follows is a sum but for the pair, whose tanh is shared out as its arguments are."""
    heads, task = planted
    found = score("lrp:raw", heads, task, split="all")
    y, eps = task.sign.numpy(), task.noise.numpy()
    pair = 1.5 * np.tanh(4.0)
    parts = np.stack([2.5 * y, pair * y, pair * y, 0 * y, -0.8 * y, 3 + 0 * y, 0.3 * eps], 1)
    margin = (parts.sum(1) - 3) * y
    slope = y / (1 + np.exp(margin))  # of minus the loss, with respect to the logit
    assert by_name(found) == pytest.approx((parts * slope[:, None]).mean(0), abs=1e-6)


# ---- what the module does not have


@pytest.mark.parametrize("name", ["magnitude", "confidence", "attattr", "output_norm"])
def test_scores_that_need_more_than_a_gate_say_what_is_missing(planted, name):
    with pytest.raises(UnsupportedModelError) as caught:
        score(name, *planted)
    assert caught.value.cause and caught.value.remedy


@pytest.mark.parametrize("ablation", ["resample", "uniform"])
def test_ablations_that_need_tokens_or_attention_say_so(planted, ablation):
    with pytest.raises(UnsupportedModelError, match="input_ids|without weights"):
        score(f"ablation:{ablation}", *planted)
