"""Screens and races against the exact effects of all heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headlab.attention.heads import Heads
from headlab.base.errors import DataError, UsageError
from headlab.base.masks import HeadMask
from headlab.scores import score, standard_errors
from headlab.scores.measures.searches import interval, rounds
from tests.support.engine_models import RandomTask, tiny_bert


class ManyTexts(RandomTask):
    """Batches of 16 of the chosen texts."""

    def batches(self, split: str = "all", examples=None):
        wanted = self.split(split) if examples is None else np.array(sorted(examples))
        before, self.split = self.split, lambda name: wanted
        try:
            yield from list(super().batches(split))
        finally:
            self.split = before


def many(n: int = 320) -> tuple[Heads, ManyTexts]:
    heads, _ = tiny_bert()
    return heads, ManyTexts(heads.model, n=n)


def exact(heads, task, split="select") -> np.ndarray:
    """Whole masked passes, head by head."""
    found = []
    with torch.no_grad():
        complete = torch.cat([task.losses(heads.model, batch).double() for batch in task.batches(split)])
        for head in heads.index:
            with heads.masked(HeadMask.removing([head], like=heads)):
                losses = torch.cat([task.losses(heads.model, batch).double() for batch in task.batches(split)])
            found.append((losses - complete).mean().item())
    return np.array(found)


@pytest.mark.parametrize("end", ["top", "bottom"])
@pytest.mark.parametrize("search", ["screen", "race"])
def test_the_wanted_heads_are_found_and_their_values_are_those_of_all_examples(search, end):
    heads, task = many()
    whole = exact(heads, task)
    found = score(f"ablation:{search}", heads, task, end=end, wanted=2)
    confirmed = standard_errors(found).notna().to_numpy()
    best = np.argsort(-whole if end == "top" else whole)[:2]
    assert confirmed[best].all() and set(np.argsort(-found if end == "top" else found)[:2]) == set(best)
    np.testing.assert_allclose(found[confirmed], whole[confirmed], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found, whole, atol=0.2 * np.ptp(whole))


def test_a_race_measures_less_and_says_what_it_only_estimated():
    heads, task = many()
    seen = []
    losses = task.losses
    task.losses = lambda model, batch: seen.append(len(batch)) or losses(model, batch)
    score("ablation", heads, task)
    everything = sum(seen)
    seen.clear()
    found = score("ablation:race", heads, task, wanted=1)
    confirmed = standard_errors(found).notna().sum()
    assert 1 <= confirmed <= len(found) - 2
    assert sum(seen) - 160 <= everything - 80 * (len(found) - confirmed), "those left behind miss half of the examples"


def test_the_interval_covers_the_mean_of_all_examples_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        predicted = rng.normal(size=(5, 64))
        rises = 0.3 + 1.7 * predicted + rng.normal(size=(5, 64))
        seen = rng.permutation(64)[:16]
        middle, half = interval(rises[:, seen], predicted, seen, 0.1)
        inside.append(np.abs(middle - rises.mean(axis=1)) <= half)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.025)
    line = 2 - 3 * predicted  # what the prediction explains wholly is known wholly
    middle, half = interval(line[:, seen], predicted, seen, 0.1)
    np.testing.assert_allclose(middle, line.mean(axis=1))
    np.testing.assert_allclose(half, 0, atol=1e-9)


def test_rounds_double_and_end_with_all_examples():
    assert rounds(32) == [4, 8, 16, 32] and rounds(200) == [25, 50, 100, 200] and rounds(33) == [4, 8, 16, 32, 33]


def test_what_cannot_be_searched_is_refused():
    heads, task = many(n=60)
    with pytest.raises(DataError, match="at least 32 examples, and the split has 30"):
        score("ablation:race", heads, task, wanted=2)
    with pytest.raises(UsageError, match="cannot screen for mean"):
        score("ablation:screen", heads, task, ablation="mean", wanted=2)
    with pytest.raises(UsageError, match="1 to 8"):
        score("ablation:screen", heads, task, wanted=9)
    with pytest.raises(UsageError, match="top or bottom"):
        score("ablation:screen", heads, task, end="middle", wanted=2)
