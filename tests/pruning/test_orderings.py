"""Orderings and budgets: properties over all shapes of models, and wrong input."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.base.errors import UsageError
from headlab.base.masks import HeadId
from headlab.pruning.budgets import budget_size, budget_text, parse_budgets
from headlab.pruning.orderings import order

PROPERTY = settings(max_examples=60, deadline=None)  # a busy machine is no failure
SCORES = st.sampled_from([0.0, -1.0, 1.0, float("nan"), float("inf")]) | st.floats(-5, 5)
LAYERS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@st.composite
def score_columns(draw, values=SCORES):
    """Scores of a model with one to three kinds of attention, layers of unlike size, ties and missing values."""
    kinds = draw(st.lists(st.sampled_from(["encoder", "decoder", "cross"]), min_size=1, unique=True))
    rows = [(kind, layer, head) for kind in kinds for layer, size in enumerate(draw(LAYERS)) for head in range(size)]
    index = pd.MultiIndex.from_tuples(rows, names=["kind", "layer", "head"])
    scores = draw(st.lists(values, min_size=len(rows), max_size=len(rows)))
    if np.isnan(scores).all():
        scores[0] = 0.0
    return pd.Series(scores, index=index, name="score_made")


@PROPERTY
@given(score_columns(), st.sampled_from(["model", "layer", "kind"]))
def test_an_ordering_holds_every_head_once_and_is_repeatable(scores, within):
    ordering = order(scores, within)
    assert Counter(ordering) == Counter(HeadId(*row) for row in scores.index)
    assert ordering == order(scores, within)
    assert (ordering.name, ordering.within, len(ordering)) == ("made", within, len(scores))


@PROPERTY
@given(score_columns())
def test_within_the_model_scores_rise_and_missing_ones_come_last(scores):
    values = np.array([scores[tuple(head)] for head in order(scores)])
    known = values[~np.isnan(values)]
    assert (np.diff(known[np.isfinite(known)]) >= 0).all()
    assert np.isnan(values[len(known) :]).all()


@PROPERTY
@given(score_columns(), st.sampled_from(["layer", "kind"]))
def test_within_a_group_scores_rise_too(scores, within):
    depth = 2 if within == "layer" else 1
    ordering = order(scores, within)
    for group in {tuple(head)[:depth] for head in ordering}:
        values = pd.Series([scores[tuple(head)] for head in ordering if tuple(head)[:depth] == group])
        assert values.dropna().is_monotonic_increasing
        assert values.isna().is_monotonic_increasing


@PROPERTY
@given(score_columns(st.floats(-1, 1)), st.sampled_from(["layer", "kind"]), st.integers(0, 100))
def test_every_cut_takes_an_equal_share_of_each_group(scores, within, per_cent):
    depth = 2 if within == "layer" else 1
    ordering = order(scores, within)
    gone = Counter(tuple(head)[:depth] for head in ordering.cut(f"{per_cent}%"))
    sizes = Counter(tuple(head)[:depth] for head in ordering)
    share = Fraction(sum(gone.values()), len(ordering))
    equal = len(set(sizes.values())) == 1
    for group, size in sizes.items():
        assert abs(gone[group] - share * size) < (1 if equal else 2)


@PROPERTY
@given(score_columns(), st.integers(0, 100), st.integers(0, 100))
def test_larger_budgets_remove_what_smaller_ones_do_and_more(scores, one, other):
    ordering = order(scores, "layer")
    small, large = sorted([one, other])
    assert ordering.cut(f"{large}%")[: len(ordering.cut(f"{small}%"))] == ordering.cut(f"{small}%")


@PROPERTY
@given(st.integers(0, 10000), st.integers(1, 500))
def test_text_and_number_of_a_share_agree_and_round_to_the_nearest_head(basis_points, n_heads):
    text = f"{basis_points / 100}%"
    size = budget_size(text, n_heads)
    assert size == budget_size(str(basis_points / 10000), n_heads) == budget_size(basis_points / 10000, n_heads)
    assert abs(size - Fraction(basis_points, 10000) * n_heads) <= Fraction(1, 2)
    assert 0 <= size <= n_heads


@PROPERTY
@given(st.integers(0, 300))
def test_whole_numbers_are_heads(count):
    assert budget_size(count, 300) == budget_size(str(count), 300) == budget_size(np.int64(count), 300) == count


def test_budgets_as_they_are_written():
    assert [budget_size(b, 72) for b in (0, "10%", 0.1, "0.1", 12, "12", 1, 1.0, "100%", "12.5 %")] == [
        0,
        7,
        7,
        7,
        12,
        12,
        1,
        72,
        72,
        9,
    ]
    assert [budget_text(b) for b in (0, 0.1, 0.125, 0.3, 1.0, 12, " 10% ", "0.1", np.float64(0.07))] == [
        "0",
        "10%",
        "12.5%",
        "30%",
        "100%",
        "12",
        "10%",
        "0.1",
        "7%",
    ]
    assert budget_size("2.5%", 20) == 1, "halves are rounded up"


@pytest.mark.parametrize(
    ("budget", "cause"),
    [
        (73, "72 heads"),
        ("73", "72 heads"),
        (-1, "out of range"),
        ("-1", "out of range"),
        (1.5, "150% is out of"),
        ("101%", "out of range"),
        ("-5%", "out of range"),
        (-0.1, "out of range"),
        ("ten", "not a budget"),
        ("", "not a budget"),
        ("10%%", "not a budget"),
        (True, "not a budget"),
        (float("nan"), "not a budget"),
        (None, "not a budget"),
        ("1e3", "not a budget"),
    ],
)
def test_wrong_budgets_are_refused(budget, cause):
    with pytest.raises(UsageError, match=cause):
        budget_size(budget, 72)


def test_lists_of_budgets():
    assert parse_budgets("10%, 20%,10%") == [0, "10%", "20%"]
    assert parse_budgets([0, 0.1, "10%", 5]) == [0, "10%", 5]
    assert parse_budgets("20%,0%") == ["20%", "0%"]
    assert parse_budgets(3) == [0, 3]
    for nothing in ("", " , ", []):
        with pytest.raises(UsageError, match="No budgets"):
            parse_budgets(nothing)


def two_kinds() -> pd.Series:
    rows = [("encoder", 0, 0), ("encoder", 0, 1), ("cross", 0, 0), ("cross", 0, 1)]
    index = pd.MultiIndex.from_tuples(rows, names=["kind", "layer", "head"])
    return pd.Series([4.0, 3.0, 2.0, 1.0], index=index, name="score_x")


def test_kinds_can_be_left_alone():
    ordering = order(two_kinds(), kinds=["cross"], name="label:sink", seed=5)
    assert list(ordering) == [HeadId("cross", 0, 1), HeadId("cross", 0, 0)]
    assert (ordering.name, ordering.seed, ordering.kinds) == ("label:sink", 5, ("cross",))
    assert order(two_kinds()).kinds == ("encoder", "cross")
    assert order(two_kinds(), "kind")[:2] == [HeadId("cross", 0, 1), HeadId("encoder", 0, 1)]
    assert order(two_kinds())[0] == HeadId("cross", 0, 1)


def test_nullable_columns_and_ties_are_ordered():
    labels = pd.Series([True, None, False, True], index=two_kinds().index, dtype="boolean", name="sink")
    assert [head[:] for head in order(labels)] == [
        ("cross", 0, 0),
        ("encoder", 0, 0),
        ("cross", 0, 1),
        ("encoder", 0, 1),
    ]


def test_wrong_orderings_are_refused():
    with pytest.raises(UsageError, match="Unknown within 'layers'.*Did you mean 'layer'"):
        order(two_kinds(), "layers")
    with pytest.raises(UsageError, match="Unknown kind of attention 'decoder'"):
        order(two_kinds(), kinds=["decoder"])
    with pytest.raises(UsageError, match="not indexed by kind, layer and head"):
        order(pd.Series([1.0, 2.0]))
    with pytest.raises(UsageError, match="no values"):
        order(two_kinds() * np.nan)
