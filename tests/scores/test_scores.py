"""Scores against the seven planted heads: to four digits, batch by batch, split by split, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headlab.base.errors import UsageError
from headlab.scores import score
from tests.support.planted_seven import HEADS, NAMES, is_removed, planted

# Zero ablation and Michel's I_h over all 2,000 examples, computed independently with numpy.
ZERO_ABLATION = {
    "useful": 0.1014,
    "redA": 0.0011,
    "redB": 0.0011,
    "dead": 0.0,
    "harmful": -0.0053,
    "const": 0.0808,
    "noise": -0.0006,
}
GRADIENT = {
    "useful": 0.02396,
    "redA": 0.00008,
    "redB": 0.00008,
    "dead": 0.0,
    "harmful": 0.00767,
    "const": 0.02876,
    "noise": 0.00244,
}


def by_name(scores: pd.Series) -> dict[str, float]:
    return {name: scores[HEADS[name]] for name in NAMES}


def test_zero_ablation_gives_the_known_rise_of_the_loss():
    found = by_name(score("ablation", *planted(), split="all"))
    assert found == pytest.approx(ZERO_ABLATION, abs=1e-4)
    assert found["dead"] == 0


def test_gradient_is_michels_mean_size_per_example():
    found = by_name(score("gradient", *planted(), split="all"))
    assert found == pytest.approx(GRADIENT, abs=1e-5)
    assert found["dead"] == 0


@pytest.mark.parametrize("batch_size", [1, 7, 2000])
def test_scores_do_not_depend_on_the_batches(batch_size):
    for name in ("gradient", "ablation"):
        expected = score(name, *planted(n=200))
        pd.testing.assert_series_equal(score(name, *planted(n=200, batch_size=batch_size)), expected, atol=1e-12)


def test_scores_see_only_their_split():
    heads, task = planted(n=200)
    before = score("gradient", heads, task, split="select")
    task.noise[task.split("report")] = 9.0
    pd.testing.assert_series_equal(score("gradient", heads, task, split="select"), before)
    assert score("gradient", heads, task, split="report")[HEADS["noise"]] > before[HEADS["noise"]]


def test_random_depends_on_the_seed_alone():
    heads, task = planted(n=10)
    first = score("random", heads, task, seed=1)
    assert sorted(first) == list(range(7))
    pd.testing.assert_series_equal(score("random", heads, planted(n=10)[1].__class__(heads.model), seed=1), first)
    orders = {tuple(score("random", heads, task, seed=seed)) for seed in range(20)}
    assert len(orders) > 15


def test_a_head_whose_loss_is_not_a_number_keeps_that():
    heads, task = planted(n=20)
    whole = task.losses
    task.losses = lambda model, batch: whole(model, batch) / (0 if is_removed(heads, "useful") else 1)
    found = score("ablation", heads, task)
    assert not np.isfinite(found[HEADS["useful"]])
    assert found.drop(HEADS["useful"]).notna().all()


def test_unknown_scores_and_foreign_heads_are_refused():
    heads, task = planted(n=10)
    with pytest.raises(UsageError, match="Did you mean 'gradient'"):
        score("gradiant", heads, task)
    with pytest.raises(UsageError, match="another model"):
        score("random", heads, planted(n=10)[1])
