"""Labels of key classes and of places near the query, and Voita's rule; each on maps written by hand."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headlab.attention.heads import Heads
from headlab.base.errors import UsageError
from headlab.labels import default_labels, load_label, load_labels
from tests.support.planted_maps import FAR, at_offset, everywhere, on_first, on_separators, planted, texts_of, weights
from tests.support.reference import make_batch, random_text


def on_columns(mass: float, *columns: int):
    """Each row has `mass` on these columns together and spreads the rest alike."""

    def matrix(n: int) -> np.ndarray:
        row = np.full(n, (1 - mass) / (n - len(columns)))
        row[list(columns)] = mass / len(columns)
        return np.tile(row, (n, 1))

    return weights(matrix)


def test_cls_at_128_tokens() -> None:
    """Clark et al. 2019 (1906.04341), code of figure 6: [CLS] where the mean mass is above .6; one in 128 tokens."""
    texts = [random_text(128, seed, separators=False) for seed in range(3)]
    model = planted([on_columns(0.61, 0), on_columns(0.59, 0), everywhere], causal=False)
    table = Heads(model).observe([make_batch(texts)], labels=["cls"])
    assert table["cls"].tolist() == [True, False, False]
    np.testing.assert_allclose(table["cls_score"], [0.61, 0.59, 1 / 128], atol=1e-5)
    np.testing.assert_allclose(table["cls_threshold"], 0.6, atol=1e-6)


def test_cls_is_undefined_where_none_is_added() -> None:
    table = Heads(planted([on_first], causal=False)).observe(texts_of(16), labels=["cls"])
    assert table["cls"].isna().all() and table["cls_n"].tolist() == [0]


class Spelling:
    """A tokenizer that spells 20 as a full stop, 21 as a comma, and anything else as a word."""

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [{20: "Ġ.", 21: "##,"}.get(i, "word") for i in ids]


def test_punctuation_is_full_stops_and_commas() -> None:
    """Clark et al. 2019, code of figure 6: '.' and ',' above .6. Here a tenth of the tokens, so .6 as it stands."""
    texts = []
    for seed in range(3):
        ids, special = random_text(20, seed, separators=False, first=False)
        ids = [i if i not in (20, 21) else 22 for i in ids]
        ids[4], ids[9] = 20, 21
        texts.append((ids, special))
    model = planted([on_columns(0.61, 4, 9), on_columns(0.59, 4, 9), everywhere], causal=False)
    heads = Heads(model)
    checkpoint = SimpleNamespace(model=model, tokenizer=Spelling())
    heads.subject = dataclasses.replace(heads.subject, checkpoint=checkpoint)
    table = heads.observe([make_batch(texts)], labels=["punctuation"])
    assert table["punctuation"].tolist() == [True, False, False]
    np.testing.assert_allclose(table["punctuation_threshold"], 0.6, atol=1e-6)
    without = Heads(model).observe([make_batch(texts)], labels=["punctuation"])
    assert without["punctuation"].isna().all()  # nothing is known about how tokens are spelt


def test_local_is_two_tokens_on_either_side() -> None:
    heads = [at_offset(2), at_offset(-2), at_offset(3), everywhere]
    table = Heads(planted(heads, causal=False)).observe(texts_of(40), labels=["local"])
    assert table["local"].tolist() == [True, True, False, False]
    chance = (36 * 5 + 2 * 4 + 2 * 3) / 40 / 40
    np.testing.assert_allclose(table["local_null"], chance, atol=1e-6)
    np.testing.assert_allclose(table["local_score"].iloc[-1], chance, atol=1e-6)


def test_block_is_within_the_segment() -> None:
    """Kovaleva et al. 2019 (1908.08593): block = attention within a sentence of a pair."""

    def own_half(ids: torch.Tensor) -> torch.Tensor:
        n = len(ids)
        half = torch.arange(n) > n // 2
        return FAR * (half[:, None] == half).float() - FAR * (ids == 3).float()

    table = Heads(planted([own_half, everywhere, on_separators], causal=False)).observe(
        texts_of(40, separators=True), labels=["block"]
    )
    assert table["block"].tolist() == [True, False, False]
    assert table["block_score"].iloc[0] == pytest.approx(1, abs=1e-5)
    assert 0.45 < table["block_null"].iloc[0] < 0.5  # two halves, less the separators
    one_segment = Heads(planted([own_half], causal=False)).observe(texts_of(40), labels=["block"])
    assert one_segment["block"].isna().all()


def test_vertical_takes_all_special_tokens_together() -> None:
    texts = [random_text(40, seed, separators=True) for seed in range(3)]

    def on_special(ids: torch.Tensor) -> torch.Tensor:
        special = ids == 3
        special[0] = True
        return 5 * special.float().expand(len(ids), -1)

    heads = [on_special, on_first, on_separators, everywhere]
    table = Heads(planted(heads, causal=False)).observe([make_batch(texts)], labels=["vertical", "cls", "separator"])
    assert table["vertical"].tolist() == [True, True, True, False]
    assert table["vertical_null"].iloc[0] == pytest.approx(3 / 40)


def test_mixed_is_what_no_other_label_explains() -> None:
    """Kovaleva et al. 2019: vertical + diagonal."""

    def both(ids: torch.Tensor) -> torch.Tensor:
        n = len(ids)
        found = torch.full((n, n), -FAR)
        found[:, 0] = -0.7  # a fifth of the mass, and twice two fifths
        for i in range(1, n):
            found[i, i - 1] = found[i, i] = 0.0
        return found

    labels = ["mixed", "sink", "previous_token", "self", "positional", "broad", "vertical"]
    table = Heads(planted([both, at_offset(-1), everywhere], causal=False)).observe(texts_of(40), labels=labels)
    assert table["mixed"].tolist() == [True, False, False]
    assert table["labels"].tolist()[0] == "mixed"
    assert table["mixed_score"].iloc[1] > 0.9  # a previous-token head looks there too, and has a better name


def hits_in(share: float):
    """Largest weight, a mere .4, at offset -1 in that share of the rows, else at offset -3."""

    def matrix(n: int) -> np.ndarray:
        found = np.full((n, n), 0.6 / (n - 1))
        for i in range(n):
            step = 1 if (i * 0.6180339887) % 1 < share else 3
            found[i, i - step if i >= step else 0] = 0.4
        return found / found.sum(1, keepdims=True)

    return weights(matrix)


def test_voitas_rule_is_ninety_per_cent_of_the_largest_weights() -> None:
    """Voita et al. 2019 (1905.09418): argmax at one fixed relative position at least 90 % of the time."""
    model = planted([hits_in(0.93), hits_in(0.87), at_offset(2), everywhere], causal=False)
    table = Heads(model).observe(texts_of(128), labels=["positional_argmax", "positional"])
    assert table["positional_argmax"].tolist() == [True, False, True, False]
    np.testing.assert_allclose(table["positional_argmax_score"].iloc[:2], [0.93, 0.87], atol=0.02)
    assert table["positional_argmax_offset"].tolist()[:3] == [-1, -1, 2]
    assert not table["positional"].iloc[0]  # .4 of the mass: the two rules are not the same


def test_special_tokens_are_left_out_before_the_arg_max() -> None:
    def mostly_first(ids: torch.Tensor) -> torch.Tensor:
        n = len(ids)
        found = torch.full((n, n), -FAR)
        found[:, 0] = 2.0
        for i in range(1, n):
            found[i, i - 1] = found[i, i - 1].clamp_min(0.0)
        return found

    texts = [random_text(30, seed, separators=False) for seed in range(4)]
    table = Heads(planted([mostly_first], causal=False)).observe([make_batch(texts)], labels=["positional_argmax"])
    assert table["positional_argmax"].iloc[0]
    mass = np.exp(2) / (np.exp(2) + 1)  # on [CLS], of all words but the first, which looks nowhere else
    assert table["positional_argmax_excluded"].iloc[0] == pytest.approx((28 * mass + 1) / 29, abs=1e-5)
    assert table["positional_argmax_score"].iloc[0] == pytest.approx(28 / 29)  # token 1 may not look at [CLS]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 2, 3])
def test_a_uniform_head_points_nowhere(causal: bool, window: int | None) -> None:
    model = planted([everywhere], causal=causal, window=window)
    table = Heads(model).observe(texts_of(24), labels=default_labels())
    assert table["labels"].tolist() == ["broad"]


def test_rare_token_is_the_rarest_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Voita et al. 2019: arg max on the least frequent token; the 500 most frequent are left out."""
    from headlab.labels import rare_token

    monkeypatch.setattr(rare_token, "COMMON", 5)
    texts = []
    for number in range(6):
        ids = [5, 6, 7, 8, 9, 5, 6, 7, 8, 9]
        ids[number] = 20 + number  # each stands in one text only
        texts.append((ids, [False] * 10))

    def on_rare(ids: torch.Tensor) -> torch.Tensor:
        return 2.0 * (ids >= 20).float().expand(len(ids), -1)

    table = Heads(planted([on_rare, everywhere, at_offset(-1)], causal=False)).observe(
        [make_batch(texts)], labels=["rare_token"]
    )
    assert table["rare_token"].tolist() == [True, False, False]
    assert table["rare_token_score"].iloc[0] == pytest.approx(1)
    assert table["rare_token_null"].iloc[0] == pytest.approx(0.1)


def test_every_label_says_what_it_is() -> None:
    for name in default_labels():
        label = load_label(name)
        assert label.name == name and label.source and label.definition
        assert dataclasses.is_dataclass(label) and hash(label)


def test_labels_that_read_a_file_say_so() -> None:
    with pytest.raises(UsageError, match="conllu"):
        load_label("syntactic:det")
    with pytest.raises(UsageError, match="mentions"):
        load_labels(["coreference"])
    with pytest.raises(UsageError, match="previous_token"):
        load_labels(["previous"])
