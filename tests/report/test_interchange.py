"""Maps and scores go to other tools' shapes and come back; maps in a page keep their numbers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headlab.base.errors import DataError
from headlab.base.masks import HeadMask
from headlab.report.interchange import (
    by_kv_group,
    from_kv_groups,
    read_duo,
    read_retrieval,
    to_bertviz,
    to_circuitsvis,
    write_duo,
    write_retrieval,
)
from headlab.report.notebook import mask_html, show
from headlab.report.page.compare import correlations, label_changes, rank_correlation, score_agreement, shared_labels
from headlab.report.page.quantise import BUDGET, floor_of, pack, pack_all, unpack
from headlab.runs.maps import AttentionMap, load_maps, save_maps

ALL = [("encoder", layer, head) for layer in range(2) for head in range(3)]


def test_bertviz_gets_its_layers(fake: SimpleNamespace) -> None:
    maps = fake.maps(["▁a", "b"], ALL)
    found = to_bertviz(maps)
    assert found["tokens"] == ["a", "b"] and [a.shape for a in found["attention"]] == [(1, 3, 2, 2)] * 2
    np.testing.assert_allclose(found["attention"][1][0, 2], maps[5].weights, rtol=1e-6)
    with pytest.raises(DataError, match=r"layer 0: 0, 1, 2; layer 1: 0, 1\)"):
        to_bertviz(maps[:5])
    with pytest.raises(DataError, match="no map of text 7"):
        to_bertviz(maps, text=7)


def test_bertviz_gets_encoder_decoder_and_cross(fake: SimpleNamespace) -> None:
    maps = [
        *fake.maps(["s", "t"], [("encoder", 0, 0)]),
        *fake.maps(["x", "y", "z"], [("decoder", 0, 0)]),
        *fake.maps(["x", "y", "z"], [("cross", 0, 0)], keys=["s", "t"]),
    ]
    found = to_bertviz(maps)
    assert found["encoder_tokens"] == ["s", "t"] and found["decoder_tokens"] == ["x", "y", "z"]
    assert found["cross_attention"][0].shape == (1, 1, 3, 2) and found["decoder_attention"][0].shape == (1, 1, 3, 3)


def test_circuitsvis_gets_heads_tokens_and_names(fake: SimpleNamespace) -> None:
    found = to_circuitsvis(fake.maps(["a", "b"], ALL))
    assert found["attention"].shape == (6, 2, 2) and found["attention_head_names"][4] == "L1H1"
    with pytest.raises(DataError, match="not the same tokens"):
        to_circuitsvis(fake.maps(["a"], [("cross", 0, 0)], keys=["b"]))


def test_duo_attention_round_trip(tmp_path: Path, decoder_heads: pd.DataFrame) -> None:
    scores = by_kv_group(decoder_heads["score_gradient"], decoder_heads)
    path = write_duo(scores, tmp_path / "full_attention_heads.tsv")
    assert np.loadtxt(path, delimiter="\t").shape == (30, 3)  # as duo-attention itself reads it
    back = read_duo(path)
    np.testing.assert_array_equal(back.sort_index(), scores.sort_index())
    spread = from_kv_groups(back, decoder_heads)
    assert spread[("decoder", 4, 5)] == pytest.approx(
        decoder_heads["score_gradient"].loc["decoder", 4].iloc[3:6].mean()
    )
    with pytest.raises(DataError, match="another shape"):
        from_kv_groups(back.iloc[:3], decoder_heads)
    with pytest.raises(DataError, match="unlike numbers of heads"):
        write_duo(scores.iloc[:-1], path)
    path.write_text("a\tb\n")
    with pytest.raises(DataError, match="no table of numbers"):
        read_duo(path)


def test_retrieval_heads_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"16-19": [1.0, 0.5], "3-2": [0.25]}))
    found = read_retrieval(path)
    assert found.loc[("decoder", 16, 19), "score_retrieval"] == 0.75 and found["n"].tolist() == [1, 2]
    write_retrieval(found["score_retrieval"], path)
    assert json.loads(path.read_text()) == {"3-2": [0.25], "16-19": [0.75]}
    path.write_text("[1]")
    with pytest.raises(DataError, match="no file of retrieval heads"):
        read_retrieval(path)


@pytest.mark.parametrize(("bits", "near_one", "near_zero"), [(8, 4e-3, 4e-4), (16, 2e-5, 2e-6)])
def test_packed_maps_keep_their_numbers(bits: int, near_one: float, near_zero: float) -> None:
    weights = np.concatenate([np.linspace(0, 0.01, 500), np.linspace(0.01, 1, 500)]).reshape(50, 20)
    packed = pack(weights, bits)
    back = unpack(packed)
    kept = weights >= packed.floor
    assert (back[~kept] == 0).all() and packed.floor == floor_of(20) == 1e-3
    error = np.abs(back - weights)
    assert error[kept].max() <= near_one and error[kept & (weights <= 0.01)].max() <= near_zero


def test_maps_stay_within_the_budget_and_small_ones_are_fine() -> None:
    rng = np.random.default_rng(0)
    big, small = rng.dirichlet(np.ones(800), 800), np.eye(4)
    budget = int(1.5 * len(pack(big, 8).data))
    packed, spent = pack_all([big, small, big], budget)
    assert [item.bits for item in packed] == [8, 16] and spent == sum(len(item.data) for item in packed) <= budget
    twenty, spent = pack_all([rng.dirichlet(np.full(128, 0.2), 128) for _ in range(20)])
    assert len(twenty) == 20 and twenty[0].bits == 16 and spent < BUDGET < 10_000_000


def test_special_tokens_come_back(tmp_path: Path) -> None:
    item = AttentionMap("encoder", 0, 0, 0, np.eye(3), ["<b>", "x", "y"], ["<b>", "x", "y"], [True, False, False])
    save_maps(tmp_path, [item])
    (found,) = load_maps(tmp_path)
    assert found.query_special == [True, False, False] and found.key_special is None
    with pytest.raises(DataError, match="2 flags of special tokens do not fit 3 tokens"):
        AttentionMap("encoder", 0, 0, 0, np.eye(3), list("abc"), list("abc"), [True, False])


def test_correlations_are_those_of_scipy(encoder_heads: pd.DataFrame) -> None:
    other = encoder_heads.iloc[10:].assign(entropy=lambda t: t["entropy"] + t["distance"], prev_mass=0.5)
    found = correlations(encoder_heads.loc[other.index], other).set_index("column")
    expected = stats.spearmanr(encoder_heads["entropy"].iloc[10:], other["entropy"])
    assert found.loc["entropy", ["rho", "p", "n"]].tolist() == pytest.approx([*expected, 62])
    assert np.isnan(found.loc["prev_mass", "rho"]) and found.loc["score_gradient", "rho"] == pytest.approx(1)
    assert np.isnan(rank_correlation(encoder_heads["entropy"].iloc[:2], other["entropy"])[0])
    assert score_agreement(encoder_heads)["n"].tolist() == [72]


def test_label_changes_count_labels_that_both_tables_decide(encoder_heads: pd.DataFrame) -> None:
    left = encoder_heads.assign(sink=True, broad=True).astype({"sink": "boolean", "broad": "boolean"})
    right = left[["broad", "broad_score", "sink", "sink_score"]].copy()  # the other labels were not computed
    right.iloc[3] = [False, 0.1, False, 0.1]
    right.iloc[4, 0] = pd.NA  # undefined for this head
    assert shared_labels(left, right) == ["broad", "sink"]
    assert label_changes(left, right).values.tolist() == [["L0H3", "broad, sink", "none"]]
    right["sink"] = pd.array([pd.NA] * 72, dtype="boolean")
    assert shared_labels(left, right) == ["broad"]
    assert label_changes(left, right).values.tolist() == [["L0H3", "broad", "none"]]
    assert label_changes(left, right[[]]).empty and not shared_labels(left, right[[]])


def test_a_mask_shows_itself() -> None:
    html = mask_html(HeadMask({("encoder", 0): [True, False, True], ("cross", 1): [True, True]}))
    assert "4 of 5 heads kept, 1 removed" in html and html.count("<rect") == 5 and html.count("<path") == 1
    assert "<script" not in html


def test_tables_and_maps_show_themselves(small_heads: pd.DataFrame, fake: SimpleNamespace) -> None:
    (item,) = fake.maps(['"><script>alert(1)</script>', "b"], [("encoder", 0, 0)])
    shown = show(small_heads, [item])._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in shown
    assert shown.count("<") == 2 and "<iframe" in item._repr_html_()
