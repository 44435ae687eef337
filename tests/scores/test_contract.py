"""Every score, and every variant, on a tiny decoder, a classifier and an encoder-decoder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from headlab.base.errors import DataError, UsageError
from headlab.base.masks import HeadMask
from headlab.scores import SCORES, score, standard_errors
from tests.support.tiny_tasks import SHAPES, tiny

QUICK = {"shapley": {"permutations": 2, "exact": False}, "hard_concrete": {"steps": 4}, "exact_k": {"steps": 4}}
NAMES = [name for name in SCORES.names() if name != "label"] + ["label:previous_token"]
SLOW = [f"{name}:{ablation}" for name in ("greedy_ablation", "shapley") for ablation in ("zero", "resample", "uniform")]
EVERY = [*NAMES, *(f"{name}:{suffix}" for name in SCORES.names() for suffix in SCORES.load(name).variants)]
# What is left out runs the same code as ablation many times over, or needs more examples than are here.
EVERY = [name for name in EVERY if name not in SLOW and not name.endswith(":race")]
ORDERED = ("shapley", "hard_concrete", "exact_k", "greedy_ablation", "gradient_iterated")


@pytest.fixture(scope="module", params=SHAPES)
def judged(request):
    heads, task = tiny(request.param)
    return request.param, heads, task


def settings(name: str) -> dict:
    return QUICK.get(name.split(":")[0], {})


@pytest.mark.parametrize("name", EVERY)
def test_a_score_is_a_number_per_head_the_same_twice_and_leaves_the_model(judged, name):
    _, heads, task = judged
    weights = {key: value.clone() for key, value in heads.model.state_dict().items()}
    calls: list[tuple] = []
    found = score(name, heads, task, seed=3, progress=lambda *step: calls.append(step), **settings(name))
    assert found.name == f"score_{name}"
    assert found.index.equals(heads.index) and found.dtype == "float64"
    defined = found[found.index.get_level_values("kind") != "cross"] if name.startswith("label") else found
    assert np.isfinite(defined).all()
    assert all(0 <= done <= total and isinstance(what, str) for done, total, what in calls)
    if calls:
        assert calls[-1][0] == calls[-1][1]
    pd.testing.assert_series_equal(score(name, heads, task, seed=3, **settings(name)), found)
    assert all(torch.equal(value, weights[key]) for key, value in heads.model.state_dict().items())
    assert all(parameter.grad is None for parameter in heads.model.parameters())
    assert not heads.model.training
    errors = standard_errors(found)
    if errors is not None:
        assert errors.index.equals(found.index) and (errors >= 0).all()


# Training draws by batch; a place in an order may turn on almost equal values.
@pytest.mark.parametrize("name", [name for name in EVERY if not name.startswith(ORDERED)])
def test_a_score_does_not_depend_on_the_batches(judged, name):
    _, heads, task = judged
    expected = score(name, heads, task, **settings(name))
    singles = type(task)(heads.model, batch_size=1)
    found = score(name, heads, singles, **settings(name))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("ablation", ["zero", "mean", "resample", "uniform"])
def test_shapley_values_sum_to_the_loss_that_all_heads_save(judged, ablation):
    _, heads, task = judged
    found = score("shapley", heads, task, ablation=ablation, permutations=2, exact=False, truncation=0.2)
    means = heads.replacements(ablation, task.batches("select"))
    losses = []
    for mask in (HeadMask.full(heads), HeadMask.removing(list(heads.index), like=heads)):
        with torch.no_grad(), heads.masked(mask, ablation, means):
            losses += [torch.cat([task.losses(heads.model, batch) for batch in task.batches("select")]).mean().item()]
    assert found.sum() == pytest.approx(losses[1] - losses[0], abs=1e-4)


@pytest.mark.parametrize("name", ["gradient", "ablation", "fisher", "confidence", "lrp", "shapley", "ablation:mean"])
def test_a_split_without_examples_is_refused(judged, name):
    _, heads, task = judged
    empty = type(task)(heads.model, n=1)
    with pytest.raises(DataError, match="no examples"):
        score(name, heads, empty, split="report", **settings(name))


@pytest.mark.parametrize("name", ["greedy_ablation", "shapley", "ablation"])
def test_what_a_journal_holds_is_not_computed_again(judged, name):
    """A run that was killed goes on where it was."""
    _, heads, task = judged
    journal: dict[str, list] = {}
    whole = score(name, heads, task, journal=journal, **settings(name))
    assert len(journal) > len(heads.index) - 1
    half = dict(list(journal.items())[: len(journal) // 2])
    pd.testing.assert_series_equal(score(name, heads, task, journal=half, **settings(name)), whole, atol=1e-6)
    assert set(half) == set(journal)
    if name != "ablation":
        task.passes = 0
        pd.testing.assert_series_equal(score(name, heads, task, journal=journal, **settings(name)), whole)
        assert task.passes == 0


def test_resampling_needs_two_examples(judged):
    _, heads, task = judged
    with pytest.raises(DataError, match="at least 2 examples"):
        score("ablation:resample", heads, type(task)(heads.model, n=1))


def test_one_example_has_no_standard_error(judged):
    _, heads, task = judged
    found = score("gradient", heads, type(task)(heads.model, n=1))
    assert np.isfinite(found).all() and standard_errors(found).isna().all()


def test_names_that_mean_nothing_answer_with_what_there_is(judged):
    _, heads, task = judged
    for name, said in (
        ("gradient:per-tokens", "per-token"),
        ("fisher:mean", "no variants"),
        ("shaply", "shapley"),
        ("label", "label:induction"),
        ("label:inductions", "induction"),
    ):
        with pytest.raises(UsageError) as caught:
            score(name, heads, task)
        assert said in str(caught.value)
    with pytest.raises(UsageError, match="permutations"):
        score("shapley", heads, task, permutation=3)


def test_variants_take_their_own_ablation_whatever_is_asked(judged):
    _, heads, task = judged
    mean = score("ablation", heads, task, ablation="mean")
    pd.testing.assert_series_equal(score("ablation:mean", heads, task, ablation="zero"), mean, check_names=False)
    assert not np.allclose(mean, score("ablation", heads, task))
