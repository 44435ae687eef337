"""The paired bootstrap against scipy's, against closed forms, and on what cannot be computed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headlab.base.errors import HeadlabError
from headlab.metrics import metric
from headlab.pruning import significance
from headlab.pruning.significance import paired_bootstrap

ACCURACY, PERPLEXITY = metric("accuracy"), metric("perplexity")


def answers(correct: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"correct": correct.astype(float), "examples": 1.0})


def two_runs(n: int = 300) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(5)
    before = rng.random(n) < 0.8
    return answers(before), answers(before & (rng.random(n) < 0.9))


def test_the_interval_is_scipys_paired_percentile_interval():
    before, after = two_runs()
    row = paired_bootstrap(before, [after], [ACCURACY], resamples=8000).loc[(0, "accuracy")]
    theirs = stats.bootstrap(
        (before["correct"].to_numpy(), after["correct"].to_numpy()),
        lambda x, y, axis: (x - y).mean(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=8000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert row["drop"] == pytest.approx((before["correct"] - after["correct"]).mean(), abs=1e-12)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((theirs.low, theirs.high), abs=4e-3)  # steps of 1/300


def test_pairing_makes_the_interval_of_a_constant_effect_a_point():
    rng = np.random.default_rng(0)
    tokens = np.full(50, 7.0)
    nll = rng.normal(20, 8, 50)
    before = pd.DataFrame({"nll": nll, "tokens": tokens})
    after = pd.DataFrame({"nll": nll + 7 * np.log(2), "tokens": tokens})  # perplexity doubles, whatever is drawn
    row = paired_bootstrap(before, [after], [PERPLEXITY]).loc[(0, "perplexity")]
    assert row["value"] == pytest.approx(2 * row["baseline"])
    assert row["baseline"] == pytest.approx(np.exp(nll.sum() / 350))
    assert row["drop"] == pytest.approx(row["baseline"])  # lower is better: a rise is a drop in quality
    assert row["ci_low"] < row["drop"] < row["ci_high"]
    same = paired_bootstrap(before, [before], [PERPLEXITY]).loc[(0, "perplexity")]
    assert same[["drop", "ci_low", "ci_high"]].abs().max() < 1e-12


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(200):
        before = rng.random(150) < 0.8
        after = np.where(rng.random(150) < 0.2, rng.random(150) < 0.3, before)  # true drop: .2 * (.8 - .3) = .1
        row = paired_bootstrap(answers(before), [answers(after)], [ACCURACY], seed=trial).iloc[0]
        covered += row["ci_low"] <= 0.1 <= row["ci_high"]
    assert 0.88 <= covered / 200 <= 0.99


def test_many_runs_and_metrics_equal_each_alone_in_pieces_or_whole(monkeypatch):
    before, after = two_runs(100)
    worse = answers(np.zeros(100))
    both = paired_bootstrap(before, [after, worse], [ACCURACY], seed=3)
    assert list(both.index) == [(0, "accuracy"), (1, "accuracy")]
    monkeypatch.setattr(significance, "CHUNK_BYTES", 8 * 100 * 7)
    alone = pd.concat([paired_bootstrap(before, [run], [ACCURACY], seed=3) for run in (after, worse)])
    np.testing.assert_allclose(both.to_numpy(), alone.to_numpy(), atol=1e-12)
    nll = pd.DataFrame({"nll": np.random.default_rng(0).random(50), "tokens": 1.0})
    first, second = (
        paired_bootstrap(nll, [nll.assign(nll=nll["nll"] ** 2)], [metric("perplexity")], seed=seed) for seed in (3, 4)
    )
    assert first["ci_low"].item() != second["ci_low"].item() and first["drop"].equals(second["drop"])


def test_examples_are_matched_by_id_not_by_place():
    before, after = two_runs(100)
    shuffled = after.sample(frac=1, random_state=0)
    expected = paired_bootstrap(before, [after], [ACCURACY])
    pd.testing.assert_frame_equal(paired_bootstrap(before, [shuffled], [ACCURACY]), expected)
    with pytest.raises(HeadlabError, match="different examples"):
        paired_bootstrap(before, [after.iloc[:-1]], [ACCURACY])
    with pytest.raises(HeadlabError, match="different examples"):
        paired_bootstrap(before, [after.rename(index={0: 1000})], [ACCURACY])


@pytest.mark.filterwarnings("error")
def test_what_is_no_number_stays_none_and_does_not_spread():
    before, after = two_runs(20)
    broken = after.assign(correct=np.nan)
    found = paired_bootstrap(before, [broken, after], [ACCURACY])
    assert found.loc[(0, "accuracy"), ["value", "drop", "ci_low", "ci_high"]].isna().all()
    assert found.loc[(1, "accuracy")].notna().all()
    exploded = pd.DataFrame({"nll": [1e6, 1.0], "tokens": [1.0, 1.0]})
    whole = pd.DataFrame({"nll": [1.0, 1.0], "tokens": [1.0, 1.0]})
    assert paired_bootstrap(whole, [exploded], [PERPLEXITY])["drop"].item() == np.inf


def test_one_example_has_no_interval():
    one = answers(np.ones(1))
    row = paired_bootstrap(one, [answers(np.zeros(1))], [ACCURACY]).iloc[0]
    assert row["drop"] == 1 and np.isnan([row["ci_low"], row["ci_high"]]).all()
