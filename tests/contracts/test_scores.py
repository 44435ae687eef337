"""Every built-in score follows the contract, and each rule catches a score that breaks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from headlab.scores import SCORES, Score, ScoreContext, Scores
from headlab.testing import check_score

LEARNED = ("hard_concrete", "exact_k")  # by batch


@pytest.mark.parametrize("name", SCORES.built_in())
def test_built_in_scores_follow_the_contract(name: str) -> None:
    quick = {"shapley": {"permutations": 2, "exact": False}, "hard_concrete": {"steps": 4}, "exact_k": {"steps": 4}}
    settings: dict[str, Any] = quick.get(name, {}) | ({"label": "previous_token"} if name == "label" else {})
    check_score(SCORES.load(name)(**settings), skip=("batches",) if name in LEARNED else ())


@dataclass(frozen=True)
class Position(Score):
    """Later heads count more."""

    name = "position"
    title = "position"
    text = "The place of the head in the model."
    definition = "the row of the head in the table"
    source = "ours"
    variants = {"twice": {"factor": 2.0}}

    factor: float = 1.0

    def __call__(self, context: ScoreContext) -> Scores:
        return Scores(self.factor * np.arange(len(context.heads.index), dtype=float))


def test_a_score_of_ones_own_follows_the_contract() -> None:
    check_score(Position)
    check_score(Position(factor=3.0))


def made(**changes: Any) -> type[Score]:
    """A class like Position, with something changed."""
    return dataclass(frozen=True)(type("Changed", (Position,), changes))


def raising(when: Any) -> Any:
    def call(self: Score, context: ScoreContext) -> Scores:
        if when(context):
            raise ZeroDivisionError
        return Scores(np.zeros(len(context.heads.index)))

    return call


def trains(self: Score, context: ScoreContext) -> Scores:
    context.heads.subject.module.train()
    return Scores(np.zeros(len(context.heads.index)))


def values(function: Any) -> Any:
    return lambda self, context: function(len(context.heads.index), context)


def without_gradients(context: ScoreContext) -> bool:
    return type(context.task).__name__ == "WithoutGradients"


class Melting(Position):
    """Not a dataclass of its own."""


BROKEN = {
    "has no title": made(title=""),
    "no sentence": made(text="Place"),
    "has no source": made(source=""),
    "has no definition": made(definition=""),
    "is no frozen dataclass": Melting,
    "with a setting it does not have: factr": made(variants={"twice": {"factr": 2.0}}),
    "has the suffix label": made(suffix="label"),
    "not called with a context alone": made(__call__=lambda self, context, more: Scores(np.zeros(1))),
    "returns int, not Scores": made(__call__=values(lambda n, context: 3)),
    "ends with ZeroDivisionError": made(__call__=raising(lambda context: True)),
    "gives 3 values": made(__call__=values(lambda n, context: Scores(np.zeros(3)))),
    "an infinite value": made(__call__=values(lambda n, context: Scores(np.full(n, np.inf)))),
    "gives no head a value": made(__call__=values(lambda n, context: Scores(np.full(n, np.nan)))),
    "standard errors below 0": made(__call__=values(lambda n, context: Scores(np.zeros(n), np.full(n, -1.0)))),
    "another value under the same seed": made(__call__=values(lambda n, context: Scores(np.random.rand(n)))),
    "leave the model as it found it: training flags": made(__call__=trains),
    "depends on how the examples are batched": made(
        __call__=values(lambda n, context: Scores(np.full(n, float(len(list(context.task.batches("select")))))))
    ),
    "a misspelt setting with TypeError": made(settings=classmethod(lambda cls: ["a_setting_that_no_score_has"])),
    "a loss without gradients with ZeroDivisionError": made(__call__=raising(without_gradients)),
    "a split without examples with ZeroDivisionError": made(__call__=raising(lambda c: c.n_examples == 0)),
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_score_is_caught(says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_score(BROKEN[says])


def test_what_is_no_score_is_caught() -> None:
    with pytest.raises(AssertionError, match="is no subclass"):
        check_score(dict)  # type: ignore[arg-type]
