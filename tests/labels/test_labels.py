"""What the labels say about attention written by hand; every expected number is derived here or has its source."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from headlab.attention.heads import Heads
from headlab.labels import LABELS, load_label
from tests.support.planted_maps import at_offset, everywhere, on_first, on_separators, planted, texts_of, weights
from tests.support.reference import make_batch, random_text

ALL = ["previous_token", "next_token", "self", "positional", "separator", "broad", "sink"]


def table_of(*heads, causal: bool, length: int, window: int | None = None, separators: bool = False, n: int = 4):
    model = planted(list(heads), causal=causal, window=window)
    return Heads(model).observe(texts_of(length, n, separators=separators), labels=ALL)


def carried(table: pd.DataFrame) -> list[set[str]]:
    return [set(text.split(",")) for text in table["labels"]]


def test_these_seven_are_among_the_labels() -> None:
    assert set(ALL) <= set(LABELS.names())
    for name in ALL:
        label = load_label(name)
        assert label.name == name and label.source and label.definition and 0 < label.threshold < 1


# ---- published thresholds hold as they stand on texts like those they were chosen on


@pytest.mark.parametrize(
    ("label", "offset"), [("previous_token", -1), ("next_token", 1), ("self", 0), ("positional", -1)]
)
def test_half_of_the_mass_at_128_tokens(label: str, offset: int) -> None:
    """Clark et al. 2019 (1906.04341), code of figure 6: next / prev where the mean mass is above .5, at 128 tokens."""
    table = table_of(at_offset(offset, 0.51), at_offset(offset, 0.49), everywhere, causal=False, length=128)
    assert table[label].tolist() == [True, False, False]
    np.testing.assert_allclose(table[f"{label}_score"], [0.51, 0.49, 1 / 128], atol=1e-5)
    np.testing.assert_allclose(table[f"{label}_threshold"], 0.5, atol=1e-9)
    np.testing.assert_allclose(table[f"{label}_null"], 1 / 128, atol=1e-9)


def on_two(mass: float):
    """Puts `mass` on two separators, at n / 2 and n - 1, and the rest on all other tokens alike."""

    def matrix(n: int) -> np.ndarray:
        row = np.full(n, (1 - mass) / (n - 2))
        row[[n // 2, n - 1]] = mass / 2
        return np.tile(row, (n, 1))

    return weights(matrix)


def test_separator_at_128_tokens() -> None:
    """Clark et al. 2019, code of figure 6: [SEP] where the mean mass is above .6; two [SEP] in 128 tokens."""
    table = table_of(on_two(0.61), on_two(0.59), everywhere, causal=False, length=128, separators=True)
    assert table["separator"].tolist() == [True, False, False]
    np.testing.assert_allclose(table["separator_score"], [0.61, 0.59, 2 / 128], atol=1e-5)
    np.testing.assert_allclose(table["separator_threshold"], 0.6, atol=1e-9)


def on_first_with(mass: float):
    """A causal head with that much mass on the first token; row 0 has no choice but 1."""

    def matrix(n: int) -> np.ndarray:
        found = np.zeros((n, n))
        for i in range(n):
            found[i, : i + 1] = (1 - mass) / max(1, i)
            found[i, 0] = 1 if i == 0 else mass
        return found

    return weights(matrix)


def test_sink_at_64_tokens() -> None:
    """Gu et al. 2024 (2410.10781): alpha_1 = mean over all T rows of A[t, 1] above .3 at T = 64, causal."""
    mass = {"above": (0.31 * 64 - 1) / 63, "below": (0.29 * 64 - 1) / 63}
    table = table_of(on_first_with(mass["above"]), on_first_with(mass["below"]), everywhere, causal=True, length=64)
    assert table["sink"].tolist() == [True, False, False]
    harmonic = sum(1 / t for t in range(1, 65)) / 64
    np.testing.assert_allclose(table["sink_score"], [0.31, 0.29, harmonic], atol=1e-5)
    np.testing.assert_allclose(table["sink_null"], harmonic, atol=1e-6)
    assert abs(harmonic - 0.074) < 5e-4  # papers: uniform causal head at T = 64 has alpha_1 = .074
    np.testing.assert_allclose(table["sink_threshold"], 0.3, atol=1e-6)


def on_k_of(k: int):
    return weights(lambda n: np.tile((np.arange(n) < k) / k, (n, 1)))


def test_broad_is_3_8_nats_at_128_tokens() -> None:
    """Clark et al. 2019, code of figure 6: broad where the entropy is above 3.8 nats; e**3.8 = 44.7 keys of 128."""
    table = table_of(on_k_of(45), on_k_of(44), everywhere, causal=False, length=128)
    assert table["broad"].tolist() == [True, False, True]
    np.testing.assert_allclose(table["entropy"], [math.log(45), math.log(44), math.log(128)], atol=1e-5)
    np.testing.assert_allclose(table["broad_threshold"], 0.783, atol=5e-4)


def test_causal_entropy_is_measured_against_the_keys_that_a_query_sees() -> None:
    """A uniform causal head has 3.206 nats at T = 64, below 3.8: it is broad all the same."""
    table = table_of(everywhere, causal=True, length=64)
    assert abs(table["entropy"].iloc[0] - 3.206) < 1e-3
    assert abs(table["entropy_norm"].iloc[0] - 1) < 1e-5
    assert table["broad"].iloc[0]


# ---- heads that are what they are, at any length


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [3, 8, 64])
def test_a_uniform_head_is_broad_and_nothing_else(length: int, causal: bool) -> None:
    table = table_of(everywhere, everywhere, causal=causal, length=length, separators=length > 3)
    assert carried(table) == [{"broad"}, {"broad"}]


def test_uniform_heads_on_two_tokens_carry_no_label_of_a_place() -> None:
    for causal in (False, True):
        assert carried(table_of(everywhere, causal=causal, length=2)) == [{"broad"}]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [2, 3, 4])
def test_a_uniform_head_in_a_narrow_window_is_not_positional(window: int, causal: bool) -> None:
    """With two visible keys half of the mass is on the previous token for want of others."""
    table = table_of(everywhere, causal=causal, length=24, window=window)
    assert carried(table) == [{"broad"}]


@pytest.mark.parametrize(("causal", "length"), [(False, 8), (True, 8), (False, 40), (True, 40)])
def test_planted_offsets(causal: bool, length: int) -> None:
    heads = [at_offset(-1), at_offset(0), at_offset(-3)] + ([] if causal else [at_offset(1), at_offset(3)])
    table = table_of(*heads, causal=causal, length=length)
    labels = carried(table)
    assert labels[0] == {"previous_token", "positional"}
    assert labels[1] == {"self", "positional"}
    assert labels[2] == {"positional"} if length == 40 else "positional" in labels[2]
    assert table["positional_offset"].tolist()[:3] == [-1, 0, -3]
    if not causal:
        assert labels[3] == {"next_token", "positional"}
        assert "positional" in labels[4]
        assert table["positional_offset"].tolist()[3:] == [1, 3]


def test_offsets_are_searched_up_to_32() -> None:
    table = table_of(at_offset(-32), at_offset(32), at_offset(-33), causal=False, length=80)
    assert table["positional"].tolist() == [True, True, False]
    assert table["positional_offset"].tolist()[:2] == [-32, 32]


def test_two_heads_in_a_narrow_window_that_do_choose() -> None:
    table = table_of(at_offset(-1), at_offset(0), causal=True, length=24, window=3)
    assert carried(table) == [{"previous_token", "positional"}, {"self", "positional"}]


@pytest.mark.parametrize("length", [8, 33, 64])
def test_a_sink_is_a_sink(length: int) -> None:
    table = table_of(on_first, causal=True, length=length)
    assert "sink" in carried(table)[0]
    assert table["first_mass"].iloc[0] == pytest.approx(1)


@pytest.mark.parametrize("length", [8, 20, 33])
@pytest.mark.parametrize("causal", [True, False])
def test_a_sink_is_not_positional(length: int, causal: bool) -> None:
    """One query of each text sees the first token at offset 1 - length; that is no habit of looking there."""
    assert carried(table_of(on_first, causal=causal, length=length)) == [{"sink"}]


def test_a_separator_head_is_not_positional() -> None:
    texts = [random_text(12, seed, separators=False, first=False) for seed in range(4)]
    for ids, special in texts:
        ids[-1], special[-1] = 3, True
    table = Heads(planted([on_separators], causal=False)).observe([make_batch(texts)], labels=ALL)
    assert carried(table) == [{"separator"}]


def test_separator_is_undefined_without_separators() -> None:
    """Such a head cannot be told from a broad one there; missing is not False."""
    table = table_of(on_separators, everywhere, causal=False, length=16)
    assert table["separator"].isna().all()
    assert str(table["separator"].dtype) == "boolean"
    assert table["separator_n"].tolist() == [0, 0]
    assert table["separator_mass"].isna().all()
    assert carried(table) == [{"broad"}, {"broad"}]


def test_separator_counts_only_texts_that_have_one() -> None:
    texts = [random_text(16, seed, separators=seed % 2 == 0, first=False) for seed in range(6)]
    table = Heads(planted([on_separators], causal=False)).observe([make_batch(texts)], labels=["separator"])
    assert table["separator_n"].iloc[0] == 3 * 16
    assert table["separator_score"].iloc[0] == pytest.approx(1)
    assert table["separator"].iloc[0]


def test_next_token_is_undefined_in_a_decoder() -> None:
    table = table_of(everywhere, at_offset(-1), causal=True, length=12)
    assert table["next_token"].isna().all()
    assert table["next_mass"].isna().all()


def test_mixed_lengths_pool_their_queries_and_their_chance() -> None:
    lengths = (5, 9, 30)
    texts = [random_text(n, n, separators=False, first=False) for n in lengths]
    table = Heads(planted([everywhere], causal=True)).observe([make_batch(texts)], labels=ALL)
    rows = [i for n in lengths for i in range(1, n + 1)]
    first = sum(1 / i for i in rows) / len(rows)
    previous = [1 / i for i in rows if i > 1]
    assert table["sink_null"].iloc[0] == pytest.approx(first, abs=1e-6)
    assert table["previous_token_null"].iloc[0] == pytest.approx(sum(previous) / len(previous), abs=1e-6)
    assert carried(table) == [{"broad"}]


def test_a_head_may_carry_none() -> None:
    """A fifth of the mass on each of the first five tokens: nothing published is true of that."""
    table = table_of(on_k_of(5), causal=False, length=64)
    assert table["labels"].tolist() == ["none"]


def test_labels_are_found_whatever_the_order_of_heads_and_layers() -> None:
    kinds = [at_offset(-1), on_separators, everywhere, at_offset(2)]
    expected = [{"previous_token", "positional"}, {"separator"}, {"broad"}, {"positional"}]
    model = planted(kinds, kinds[::-1], causal=False)
    table = Heads(model).observe(texts_of(40, separators=True), labels=ALL)
    assert carried(table) == expected + expected[::-1]


def test_positional_chooses_on_even_texts_and_measures_on_odd_ones() -> None:
    """A head that looks back 2 in even texts and back 5 in odd ones: little mass where it is measured."""

    def fickle(ids: torch.Tensor) -> torch.Tensor:
        return at_offset(-2 if int(ids[0]) == 10 else -5)(ids)

    texts = [random_text(24, seed, separators=False, first=False) for seed in range(6)]
    for i, (ids, _) in enumerate(texts):
        ids[0] = 10 if i % 2 == 0 else 11
    row = Heads(planted([fickle], causal=True)).observe([make_batch(texts)], labels=["positional"]).iloc[0]
    assert row["positional_offset"] == -2
    assert row["positional_score"] < 0.2
    assert not row["positional"]


def test_one_text_alone_is_measured_on_itself_and_has_no_interval() -> None:
    row = table_of(at_offset(-1), causal=True, length=24, n=1).iloc[0]
    assert row["positional"] and row["previous_token"]
    assert np.isnan(row["previous_token_q"]) or 0 <= row["previous_token_q"] <= 1


def test_the_same_label_asked_twice_counts_once() -> None:
    heads = Heads(planted([on_first], causal=True))
    table = heads.observe(texts_of(12), labels=["sink", "sink"])
    assert table.columns.is_unique
    assert table["labels"].tolist() == ["sink"]
