"""Bootstrap replicates, intervals and adjusted p values against sums made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headlab.attention.heads import Heads
from headlab.attention.observe.running_sums import REPLICATES, RunningSums, poisson_weights
from headlab.attention.observe.statistics import TextSums
from headlab.labels import load_label
from tests.support.planted_maps import everywhere, planted, weights
from tests.support.reference import (
    best_offset,
    eager_maps,
    head_pool,
    make_batch,
    random_text,
    sample_batches,
    sample_texts,
)
from tests.support.tiny_models import tiny_model

LENGTHS = (9, 12, 5, 7, 6, 8, 11, 10, 14, 7, 9, 13, 6, 8, 10, 12)
STATISTIC = {
    "previous_token": "prev_mass",
    "self": "self_mass",
    "sink": "first_mass",
    "broad": "entropy_norm",
    "separator": "separator_mass",
}


def test_weights_depend_on_the_text_and_the_seed_only() -> None:
    together = poisson_weights([3, 1, 7], seed=5)
    assert together.shape == (REPLICATES, 3)
    for i, example in enumerate([3, 1, 7]):
        assert np.array_equal(together[:, i], poisson_weights([example], seed=5)[:, 0])
    assert not np.array_equal(together, poisson_weights([3, 1, 7], seed=6))
    many = poisson_weights(range(500), seed=0)
    assert abs(many.mean() - 1) < 0.02 and abs(many.var() - 1) < 0.05
    assert abs(np.corrcoef(many[:, 0], many[:, 1])[0, 1]) < 0.25


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_the_table_is_the_same_whatever_the_batching(name: str) -> None:
    heads = Heads(tiny_model(name))
    texts, _ = sample_texts(name, LENGTHS)
    labels = [*STATISTIC, "positional"]
    whole = heads.observe([make_batch(texts)], labels=labels)
    singles = [make_batch([text], first_id=i) for i, text in enumerate(texts)]
    fives = [make_batch(texts[i : i + 5], first_id=i) for i in range(0, len(texts), 5)]
    for other in (heads.observe(singles, labels=labels), heads.observe(fives[::-1], labels=labels)):
        for column in whole:
            if whole[column].dtype.kind == "f":
                np.testing.assert_allclose(whole[column], other[column], atol=1e-5, err_msg=column)
            else:
                assert whole[column].equals(other[column]), column
    assert not whole["sink_low"].equals(heads.observe(singles, labels=labels, seed=1)["sink_low"])
    assert whole["sink_low"].equals(heads.observe([make_batch(texts)], labels=labels)["sink_low"])


def replicates_by_hand(pool, place, n_texts: int, texts=None) -> np.ndarray:
    drawn = poisson_weights(range(n_texts), seed=0)
    sums = pool.by_text[place]
    total = sum(drawn[:, t] * sums[t][0] for t in sums)
    count = sum(drawn[:, t] * sums[t][1] for t in sums)
    return total / count


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_intervals_are_quantiles_of_weighted_texts(name: str) -> None:
    model = tiny_model(name)
    batches = sample_batches(name, lengths=LENGTHS)
    table = Heads(model).observe(batches, labels=[*STATISTIC, "positional"])
    pool = head_pool([(batch, eager_maps(model, batch, name)) for batch in batches])
    for kind, layer, head in table.index:
        row, key = table.loc[(kind, layer, head)], (kind, layer)
        for label, statistic in STATISTIC.items():
            expected = np.quantile(replicates_by_hand(pool, (key, head, statistic), len(LENGTHS)), [0.025, 0.975])
            np.testing.assert_allclose(row[[f"{label}_low", f"{label}_high"]].astype(float), expected, atol=1e-4)
        offset = best_offset(pool, key, head, "even")
        assert row["positional_offset"] == offset
        place = (key, head, ("odd", offset))
        assert row["positional_score"] == pytest.approx(pool.mean(place), abs=1e-4)
        assert row["positional_null"] == pytest.approx(pool.mean((key, "chance", ("odd", offset))), abs=1e-6)
        assert row["positional_n"] == pool.count[place]


def p_by_hand(pool, table, label: str, n_texts: int) -> list[float]:
    values = []
    for kind, layer, head in table.index:
        row = table.loc[(kind, layer, head)]
        spread = replicates_by_hand(pool, ((kind, layer), head, STATISTIC[label]), n_texts).std(ddof=1)
        against = row["broad_threshold"] if label == "broad" else row[f"{label}_null"]
        values.append(stats.norm.sf((row[f"{label}_score"] - against) / spread))
    return values


def test_q_is_adjusted_over_all_heads_of_the_model() -> None:
    """Benjamini and Hochberg 1995, step by step: q_i = min over j >= i of p_j n / j, in the order of p."""
    model = tiny_model("bert", num_hidden_layers=2)
    batches = sample_batches("bert", lengths=LENGTHS)
    table = Heads(model).observe(batches, labels=list(STATISTIC))
    pool = head_pool([(batch, eager_maps(model, batch, "bert")) for batch in batches])
    for label in STATISTIC:
        p = np.array(p_by_hand(pool, table, label, len(LENGTHS)))
        order, n = p.argsort(), len(p)
        steps = p[order] * n / np.arange(1, n + 1)
        q = np.empty(n)
        q[order] = np.minimum.accumulate(steps[::-1])[::-1].clip(max=1)
        np.testing.assert_allclose(table[f"{label}_q"], q, atol=1e-3, err_msg=label)


def test_q_lies_between_0_and_1_and_is_small_for_a_planted_head() -> None:
    def wavering(n: int) -> np.ndarray:  # a sink whose strength depends on the length of the text
        found = np.tril(np.ones((n, n)))
        found[:, 0] += n
        return found / found.sum(1, keepdims=True)

    texts = [random_text(n, n, separators=False, first=False) for n in range(6, 26)]
    model = planted([weights(wavering), everywhere], causal=True)
    table = Heads(model).observe([make_batch(texts)], labels=["sink", "broad", "self"])
    for label in ("sink", "broad", "self"):
        q = table[f"{label}_q"].dropna()
        assert ((q >= 0) & (q <= 1)).all()
    assert table["sink_q"].iloc[0] < 1e-6
    assert table["sink_q"].iloc[1] > 0.05
    assert (table["sink_low"] <= table["sink_score"]).all() and (table["sink_score"] <= table["sink_high"]).all()


def test_the_interval_covers_the_mean_of_the_population() -> None:
    """95 % intervals of the mean of 60 texts, drawn 200 times from texts with a known mean: about 95 % cover it."""
    generator = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        sums = RunningSums(1, 1, [0])
        value = generator.gamma(2.0, 0.5, 60)  # mean 1
        import torch

        text_sums = TextSums(
            torch.tensor(value).view(60, 1, 1), torch.ones(60, 1), torch.full((60, 1), 0.1, dtype=torch.float64)
        )
        sums.add(text_sums, poisson_weights(range(60 * trial, 60 * trial + 60), seed=0))
        low, high = np.quantile(sums.replicate_means()[:, 0, 0], [0.025, 0.975])
        covered += low <= 1 <= high
    assert 0.88 <= covered / 200 <= 0.98


def test_merged_sums_are_the_sums_of_all_texts() -> None:
    import torch

    generator = torch.Generator().manual_seed(0)
    value, count = torch.rand(6, 3, 2, generator=generator), torch.randint(0, 4, (6, 2), generator=generator).float()
    chance, drawn = torch.rand(6, 2, generator=generator), poisson_weights(range(6), seed=2)
    whole, first, second = (RunningSums(3, 2, [1]) for _ in range(3))
    whole.add(TextSums(value, count, chance), drawn)
    first.add(TextSums(value[:2], count[:2], chance[:2]), drawn[:, :2])
    second.add(TextSums(value[2:], count[2:], chance[2:]), drawn[:, 2:])
    first.merge(second)
    np.testing.assert_allclose(first.mean(), whole.mean())
    np.testing.assert_allclose(first.chance_level(), whole.chance_level())
    np.testing.assert_allclose(first.replicate_means(), whole.replicate_means())
    np.testing.assert_allclose(whole.mean(), value.double().sum(0) / count.double().sum(0), rtol=1e-6)


def test_few_texts_still_have_an_interval() -> None:
    """Of 200 draws of 4 texts some are empty (each with probability e**-4): these say nothing, the others do."""
    table = Heads(tiny_model("bert")).observe(sample_batches("bert", lengths=(9, 12, 5, 7)), labels=["sink"])
    assert table[["sink_low", "sink_high", "sink_q"]].notna().all(axis=None)


def test_labels_read_the_published_statistic() -> None:
    for label, statistic in STATISTIC.items():
        assert load_label(label).statistic == statistic
