"""The chance level of a label is what permuting positions gives, taken over all permutations by hand."""

from __future__ import annotations

import itertools
from math import factorial

import numpy as np
import pytest
import torch
from scipy import stats

from headlab.attention.heads import Heads
from headlab.attention.observe.copying import _shares
from headlab.labels import KeyClass, Label, default_labels, load_label
from headlab.labels.evidence import Evidence, label_columns
from tests.support.planted_maps import planted, weights
from tests.support.reference import make_batch
from tests.support.tiny_models import FIRST, SEPARATOR

LENGTH = 5
# Labels of a place: those of an offset are chosen by the score itself, and broad is about no place.
PLACES = sorted(set(default_labels()) - {"positional", "positional_argmax", "broad"})
# As rare_token reads, which needs texts of more than 500 different tokens.
ARGMAX = Label(
    "argmax",
    "target",
    0.5,
    0.0,
    "largest weight on token 20",
    "made for this test",
    target=KeyClass(lambda scene: scene.keys.ids == 20),
    reading="argmax",
    exclude=("special",),
)


def uneven(causal: bool) -> np.ndarray:
    """A row-stochastic matrix without two equal weights in a row."""
    rows = np.random.default_rng(4).dirichlet(np.full(LENGTH, 0.3), LENGTH)
    rows = np.tril(rows) if causal else rows
    return rows / rows.sum(1, keepdims=True)


def in_order(order: tuple[int, ...], causal: bool) -> np.ndarray:
    """The matrix with the weights of each row in another order among the keys that it sees.

    The ranks of the first k places of a random order are a random order of k, so that all orders of LENGTH keys give
    each order of k keys equally often.
    """
    found = np.zeros((LENGTH, LENGTH))
    for i, row in enumerate(uneven(causal)):
        seen = i + 1 if causal else LENGTH
        found[i, :seen] = row[:seen][np.argsort(np.argsort(order[:seen]))]
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_the_null_is_the_mean_score_over_all_orders_of_the_keys(causal: bool) -> None:
    orders = list(itertools.permutations(range(LENGTH)))
    layers = [[weights(lambda n, order=order: in_order(order, causal)) for order in orders]]
    heads = Heads(planted(*layers, causal=causal), example=text())
    table = heads.observe([text()], labels=[*PLACES, ARGMAX])
    assert len(table) == factorial(LENGTH)
    defined = [name for name in (*PLACES, "argmax") if table[f"{name}_score"].notna().all()]
    assert {"previous_token", "self", "sink", "separator", "cls", "block", "mixed", "argmax"} <= set(defined)
    for name in defined:
        null = table[f"{name}_null"].iloc[0]
        assert table[f"{name}_score"].mean() == pytest.approx(null, abs=1e-5), name
        assert null > 0.99 or table[f"{name}_score"].std() > 0.01  # the orders do differ, unless all keys are targets


def text():
    """[CLS] word [SEP] word word: two segments, and a token that comes twice."""
    ids = [FIRST, 20, SEPARATOR, 20, 30]
    return make_batch([(ids, [True, False, True, False, False])])


def test_the_null_of_copying_is_the_mean_over_all_ways_to_say_whose_each_raise_is() -> None:
    draw = torch.Generator().manual_seed(0)
    value, weight = torch.randn(1, 3, 2, generator=draw), torch.randn(1, 2, 4, generator=draw)
    rows = torch.randn(3, 4, generator=draw)  # three tokens, each said once
    found = [float(_shares(value, weight, rows, torch.tensor(own)).mean()) for own in itertools.permutations(range(3))]
    assert np.mean(found) == pytest.approx(1 / 3)


def test_every_label_says_what_its_null_is() -> None:
    assert load_label("sink").null.startswith("permutation of positions")
    assert load_label("broad").null == "uniform attention"
    assert load_label("copying").null.startswith("permutation of tokens")


def test_a_margin_moves_the_threshold_but_the_p_is_against_the_baseline() -> None:
    """Two heads .06 and 0 above a baseline of .5 with a standard error of .02: p of z = 3 and z = 0, adjusted."""
    label = Label("made", "word_pairs", 0.1, None, "made", "made for this test", margin=0.1)
    unit = np.array([-1.0, 1.0]) * np.sqrt(0.5)  # standard deviation 1 with ddof = 1
    score = np.array([0.56, 0.5])
    evidence = Evidence(score, np.array([0.5, 0.5]), np.array([50, 50]), score + 0.02 * unit[:, None])
    columns = label_columns(label, evidence)
    np.testing.assert_allclose(columns["made_threshold"], 0.6)
    assert columns["made"].tolist() == [False, False]
    np.testing.assert_allclose(columns["made_q"], [2 * stats.norm.sf(3), 0.5])
