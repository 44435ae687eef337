"""Learned gates: the distributions in closed form, gradients through real models, and planted heads that are found."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from headlab.base.errors import DataError, UsageError
from headlab.base.masks import HeadMask
from headlab.scores import score
from headlab.scores.gates import training as gates
from headlab.scores.gates.exact_k import ExactKGates, soft_top_k, top_k
from headlab.scores.gates.hard_concrete import HardConcreteGates, break_even, p_one, p_open, resting, sample
from tests.support.planted_seven import HEADS, NAMES, planted
from tests.support.reference import make_batch, random_text
from tests.support.tiny_tasks import tiny


def by_name(values) -> dict[str, float]:
    return dict(zip(NAMES, values, strict=True))


def number(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def state_of(model) -> tuple:
    """Everything that must come back: parameters, buffers, gradients, flags."""
    tensors = [t.detach().clone() for t in (*model.parameters(), *model.buffers())]
    flags = [p.requires_grad for p in model.parameters()], [m.training for m in model.modules()]
    return tensors, flags, [p.grad for p in model.parameters()]


def same_state(first: tuple, second: tuple) -> bool:
    return all(map(torch.equal, first[0], second[0])) and first[1:] == second[1:]


# The hard concrete distribution


def test_probabilities_are_those_of_the_closed_form():
    assert p_open(number(0)).item() == pytest.approx(0.6881, abs=5e-5)
    assert 1 - p_open(number(0)).item() == pytest.approx(0.3119, abs=5e-5)
    assert p_one(number(0)).item() == pytest.approx(0.3119, abs=5e-5)
    for log_alpha in (-3.0, -0.4, 1.7):  # the paper's formula, and its mirror image at the other end
        closed = 1 / (1 + math.exp(log_alpha - 0.33 * math.log(0.1 / 1.1)))
        assert p_open(number(log_alpha)).item() == pytest.approx(1 - closed, abs=1e-12)
        assert p_one(number(log_alpha)).item() == pytest.approx(1 - p_open(number(-log_alpha)).item(), abs=1e-12)


def test_the_gate_at_rest_is_exact_beyond_the_logarithm_of_11():
    assert resting(number(2.398)).item() == 1 and resting(number(-2.398)).item() == 0
    assert resting(number(-2.39)).item() > 0 and resting(number(2.39)).item() < 1
    assert resting(number(0)).item() == pytest.approx(0.5)


@pytest.mark.parametrize("log_alpha", [-1.5, 0.0, 0.8])
def test_sampled_gates_have_the_frequencies_of_the_closed_form(log_alpha):
    uniform = torch.rand(200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn = sample(number(log_alpha), uniform)
    assert drawn.min() == 0 and drawn.max() == 1
    assert (drawn == 0).double().mean().item() == pytest.approx(1 - p_open(number(log_alpha)).item(), abs=0.005)
    assert (drawn == 1).double().mean().item() == pytest.approx(p_one(number(log_alpha)).item(), abs=0.005)


def test_the_cost_is_the_priced_number_of_open_gates_and_has_its_slope():
    made = HardConcreteGates(3, 0.2, start=0.0)
    assert made.cost().item() == pytest.approx(0.2 * 3 * 0.68811, abs=1e-5)
    made.cost().backward()
    slope = 0.2 * 0.68811 * (1 - 0.68811)  # of a sigmoid
    assert made.weights.grad.tolist() == pytest.approx([slope] * 3, abs=1e-6)


def test_a_hard_gate_is_open_where_one_is_likelier_than_zero():
    made = HardConcreteGates(3, 0.1)
    made.weights.data = torch.tensor([-0.01, 0.01, 5.0], dtype=torch.float64)
    assert made.keep().tolist() == [False, True, True]
    likelier = p_one(made.weights) > 1 - p_open(made.weights)
    assert likelier.tolist() == made.keep().tolist()


# Exactly K


def naive_soft_top_k(weights: list[float], k: int, temperature: float) -> list[float]:
    r, total = list(weights), [0.0] * len(weights)
    for _ in range(k):
        powers = [math.exp((x - max(r)) / temperature) for x in r]
        p = [power / sum(powers) for power in powers]
        total = [t + q for t, q in zip(total, p)]
        r = [x + math.log(max(1 - q, 1e-300)) for x, q in zip(r, p)]
    return total


@pytest.mark.parametrize("temperature", [2.0, 0.5, 0.05])
def test_soft_top_k_is_the_papers_recursion(temperature):
    weights = [0.3, -1.0, 0.9, 0.1, 2.0]
    for k in range(1, 6):
        found = soft_top_k(torch.tensor(weights, dtype=torch.float64), k, temperature)
        assert found.tolist() == pytest.approx(naive_soft_top_k(weights, k, temperature), abs=1e-9)
        assert found.sum().item() == pytest.approx(k, abs=1e-9)


def test_cold_soft_gates_are_the_k_largest():
    weights = torch.tensor([0.3, -1.0, 0.9, 0.1, 2.0], dtype=torch.float64)
    assert soft_top_k(weights, 2, 0.001).tolist() == pytest.approx([0, 0, 1, 0, 1], abs=1e-6)
    assert top_k(weights, 2).tolist() == [0, 0, 1, 0, 1]
    assert top_k(torch.zeros(5), 3).tolist() == [1, 1, 1, 0, 0]  # equals do not change the count


@pytest.mark.parametrize("straight_through", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_every_draw_opens_k_gates_in_all(straight_through, share):
    made = ExactKGates(9, 4, straight_through=straight_through)
    drawn = made.draw((50, 9), share, torch.Generator().manual_seed(1))
    assert drawn.sum(-1).tolist() == pytest.approx([4.0] * 50, abs=1e-9)
    if straight_through:
        assert set(drawn.detach().round(decimals=12).unique().tolist()) == {0.0, 1.0}
    (drawn * torch.arange(9.0)).sum().backward()
    assert made.weights.grad.isfinite().all() and made.weights.grad.abs().max() > 0


@pytest.mark.parametrize("k", range(1, 8))
@pytest.mark.parametrize("seed", [0, 1])
def test_training_keeps_exactly_k(k, seed):
    heads, task = planted(n=60)
    made = ExactKGates(7, k)
    with gates.trained_gates(heads, task, made, gates.Training(steps=5, seed=seed)) as learned:
        assert learned.n_open == k == len(learned.mask(heads).kept)


# Through real models


@pytest.mark.parametrize("shape", ["decoder", "classifier", "encoder-decoder"])
def test_gates_carry_gradients_that_equal_finite_differences(shape):
    heads, task = tiny(shape)
    batch = task.batch([0, 1, 2])
    values = torch.linspace(0.3, 1.2, heads.n_heads, dtype=torch.float64)

    def loss(vector: torch.Tensor) -> torch.Tensor:
        with heads.gate_context(gates.by_layer(heads, vector)):
            return task.losses(heads.model, batch).double().mean()

    wanted = values.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(wanted), wanted)
    step = 1e-2
    with torch.no_grad():
        for place in (0, heads.n_heads // 2, heads.n_heads - 1):
            move = step * torch.eye(heads.n_heads, dtype=torch.float64)[place]
            difference = (loss(values + move) - loss(values - move)) / (2 * step)
            assert slope[place].item() == pytest.approx(difference.item(), abs=1e-3)


def test_hard_gates_equal_the_mask():
    heads, task = tiny("decoder")
    batch = task.batch([0, 1, 2, 3])
    gone = list(heads.index)[1::3]
    hard = torch.tensor([float(head not in gone) for head in heads.index])
    with torch.no_grad():
        with heads.gate_context(gates.by_layer(heads, hard)):
            found = task.losses(heads.model, batch)
        with heads.masked(HeadMask.removing(gone, like=heads)):
            expected = task.losses(heads.model, batch)
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_gates_of_another_shape_are_refused():
    heads, _ = tiny("decoder")
    key, size = next(iter(heads.heads_per_layer.items()))
    for wrong in ({key: torch.ones(size + 1)}, {("cross", 7): torch.ones(size)}, {key: torch.ones(1, 1, size)}):
        with pytest.raises(UsageError, match="do not fit the model"), heads.gate_context(wrong):
            pass


@pytest.mark.parametrize("per_example", [False, True])
def test_training_gates_touches_nothing_of_the_model(per_example):
    heads, task = tiny("classifier")
    heads.model.train()
    next(heads.model.parameters()).requires_grad_(False)
    before, random_state = state_of(heads.model), torch.get_rng_state()
    first = score("hard_concrete", heads, task, steps=4, penalty=0.01, per_example=per_example)
    score("exact_k", heads, task, steps=4, per_example=per_example)
    assert same_state(state_of(heads.model), before)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert first.nunique() > 1  # but the gates moved, each its own way


def test_weights_trained_along_come_back_bit_for_bit():
    heads, task = tiny("classifier")
    before = state_of(heads.model)
    how, made = gates.Training(steps=3, train="all", weights_rate=1e-3), HardConcreteGates(heads.n_heads, 0.01)
    with pytest.raises(KeyError), gates.trained_gates(heads, task, made, how):
        assert not all(map(torch.equal, state_of(heads.model)[0], before[0]))
        raise KeyError
    assert same_state(state_of(heads.model), before)


def test_rows_of_one_example_share_their_gates():
    rows = replace(make_batch([random_text(4, seed, separators=False) for seed in range(5)]), examples=(4, 4, 9, 7, 7))
    drawn = torch.arange(6.0).reshape(3, 2)
    assert drawn[rows.owners].tolist() == [[0, 1], [0, 1], [2, 3], [4, 5], [4, 5]]
    assert rows.sum_by_example(drawn[rows.owners]).tolist() == [[0, 2], [2, 3], [8, 10]]
    assert gates.among_all(drawn, np.array([True, False, True]))[1].tolist() == [2, 1, 3]


# Planted heads


def test_without_a_price_only_harm_and_noise_close():
    found = score("hard_concrete", *planted(n=400), penalty=0.0, steps=200)
    kept = {name: found[HEADS[name]] for name in NAMES}
    assert kept["harmful"] < 0.3 and kept["noise"] < 0.3
    assert min(kept[name] for name in ("useful", "redA", "redB", "const")) > 0.9
    assert kept["dead"] == pytest.approx(1 / (1 + math.exp(-2 + 0.33 * math.log(0.1 / 1.1))))  # nothing moves it


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_small_price_keeps_what_is_useful_and_closes_what_is_not(seed):
    heads, task = planted(n=400)
    with gates.trained_gates(heads, task, HardConcreteGates(7, 0.01), gates.Training(steps=300, seed=seed)) as learned:
        kept = by_name(learned.keep)
        assert kept["useful"] and kept["const"] and (kept["redA"] or kept["redB"])
        assert not (kept["dead"] or kept["harmful"] or kept["noise"])
        with heads.masked(learned.mask(heads)):
            assert task.evaluate("report").examples["loss"].mean() < 0.0096


@pytest.mark.parametrize("straight_through", [False, True])
def test_exactly_three_of_seven_are_one_of_the_best_triples(straight_through):
    heads, task = planted(n=400)
    found = score("exact_k", heads, task, keep=3, steps=300, straight_through=straight_through)
    chosen = {name for name in NAMES if found[HEADS[name]] in sorted(found)[-3:]}
    assert "useful" in chosen and chosen & {"redA", "redB"} and not chosen & {"dead", "harmful", "noise"}


def test_draws_depend_on_the_seed_and_on_nothing_else():
    first = score("hard_concrete", *planted(n=100), steps=20, seed=1)
    torch.manual_seed(99)
    assert score("hard_concrete", *planted(n=100), steps=20, seed=1).equals(first)
    assert not score("hard_concrete", *planted(n=100), steps=20, seed=2).equals(first)


def test_the_break_even_price_is_the_rise_over_the_number_of_heads():
    heads, task = planted()
    assert break_even(heads, task, "all") == pytest.approx((1.5966 - 0.0096) / 7, abs=1e-4)


# What cannot be


def test_a_price_that_closes_everything_is_reported():
    with pytest.warns(UserWarning, match="Every gate closed"):
        found = score("hard_concrete", *planted(n=60), penalty=50.0, steps=100)
    assert found.max() < 0.5 and np.isfinite(found).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score("hard_concrete", *planted(n=60), penalty=0.0, steps=5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"penalty": -1.0}, "penalty of -1.0"),
        ({"penalty": float("nan")}, "penalty of nan"),
        ({"steps": 0}, "0 steps"),
        ({"train": "some"}, "Unknown choice"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"train": "all"}, "frozen"),  # the planted model has no weights at all
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        score("hard_concrete", *planted(n=20), **settings)


@pytest.mark.parametrize("keep", [0, 8, -1])
def test_impossible_sizes_are_refused(keep):
    with pytest.raises(UsageError, match="cannot be kept"):
        score("exact_k", *planted(n=20), keep=keep)


def test_a_loss_that_is_no_number_is_passed_over_or_refused():
    heads, task = planted(n=100, batch_size=10)
    whole, calls = task.losses, []

    def sometimes(model, batch):
        calls.append(1)
        return whole(model, batch) * (float("nan") if len(calls) % 2 else 1.0)

    task.losses = sometimes
    made = HardConcreteGates(7, 0.01)
    with gates.trained_gates(heads, task, made, gates.Training(steps=10)) as learned:
        assert np.isnan(learned.losses).tolist() == [True, False] * 5
        assert np.isfinite(learned.worth).all()
    task.losses = lambda model, batch: whole(model, batch) * float("nan")
    with pytest.raises(DataError, match="no number in any step"):
        score("hard_concrete", heads, task, penalty=0.01, steps=3)


def test_only_the_kinds_asked_for_get_gates():
    heads, task = tiny("encoder-decoder")
    free = gates.gated_heads(heads, ["cross"])
    assert free.tolist() == [kind == "cross" for kind, _, _ in heads.index]
    made = HardConcreteGates(int(free.sum()), 100.0)
    with gates.trained_gates(heads, task, made, gates.Training(steps=30), free=free) as learned:
        assert learned.n_open == 0 and {head.kind for head in learned.mask(heads).removed} == {"cross"}
        assert np.isnan(learned.worth).tolist() == (~free).tolist()
    with pytest.raises(UsageError, match="no heads of the kind cross"):
        gates.gated_heads(planted(n=2)[0], ["cross"])
