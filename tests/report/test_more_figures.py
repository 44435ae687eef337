"""The figures by layer, of maps, of kinds, fronts, costs and training: what is drawn equals the table."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.spatial.distance import jensenshannon

from headlab.base.errors import DataError, UsageError
from headlab.report.figures import (
    cluster_map,
    cost_bars,
    entropy_by_layer,
    heads_over_training,
    mass_by_layer,
    model_view,
    pareto,
    pruning_by_kind,
    sink_map,
)
from headlab.report.figures.pareto import pareto_front
from headlab.runs.maps import AttentionMap
from headlab.runs.similarity import layout, map_distances


def test_model_view_puts_each_map_in_its_place(fake: SimpleNamespace) -> None:
    maps = fake.maps(["a", "b", "c"], [("encoder", 0, 1), ("encoder", 2, 0)])
    drawn = model_view(maps).axes[0].images[0].get_array()
    assert drawn.shape == (3 * 6 - 3, 2 * 6 - 3)
    np.testing.assert_allclose(drawn[0:3, 6:9], maps[0].weights)
    np.testing.assert_allclose(drawn[12:15, 0:3], maps[1].weights)
    assert drawn.mask[6:9].all() and drawn.mask[0:3, 0:3].all()
    with pytest.raises(DataError, match="no attention maps"):
        model_view(maps, kind="cross")


def test_model_view_of_long_texts_keeps_the_largest_weight_of_each_block() -> None:
    weights = np.zeros((100, 100))
    weights[99, 3] = 1
    tokens = [str(i) for i in range(100)]
    drawn = model_view([AttentionMap("decoder", 0, 0, 0, weights, tokens, tokens)]).axes[0].images[0].get_array()
    assert drawn.shape == (34, 34) and drawn[33, 1] == 1 and drawn.sum() == 1


@pytest.fixture
def distributions() -> list[AttentionMap]:
    rng = np.random.default_rng(0)
    tokens = ["a", "b", "c", "d"]
    return [
        AttentionMap("encoder", h // 2, h % 2, text, rng.dirichlet(np.ones(4), 4), tokens, tokens)
        for text in range(2)
        for h in range(4)
    ]


def test_divergences_are_those_of_scipy(distributions: list[AttentionMap]) -> None:
    distances = map_distances(distributions)
    assert list(distances.index) == [("encoder", 0, 0), ("encoder", 0, 1), ("encoder", 1, 0), ("encoder", 1, 1)]
    for i in range(4):
        for j in range(4):
            rows = [
                jensenshannon(distributions[4 * t + i].weights, distributions[4 * t + j].weights, axis=1) ** 2
                for t in range(2)
            ]
            assert distances.iloc[i, j] == pytest.approx(np.mean(rows), abs=1e-9)


def test_cluster_map_draws_the_scaled_points(distributions: list[AttentionMap], encoder_heads: pd.DataFrame) -> None:
    figure = cluster_map(distributions, encoder_heads)
    drawn = np.concatenate([c.get_offsets() for c in figure.axes[0].collections])
    divergences = map_distances(distributions)
    expected = layout(divergences).to_numpy()
    np.testing.assert_allclose(np.sort(drawn, axis=0), np.sort(expected, axis=0))
    assert {t.get_text() for t in figure.axes[0].texts} == {"L0H0", "L0H1", "L1H0", "L1H1"}
    distances = np.linalg.norm(expected[:, None] - expected[None], axis=2)
    assert np.corrcoef(distances[np.triu_indices(4, 1)], divergences.to_numpy()[np.triu_indices(4, 1)])[0, 1] > 0.6
    with pytest.raises(DataError, match="three are needed"):
        cluster_map(distributions[:2])


def test_by_layer_draws_heads_and_means(encoder_heads: pd.DataFrame, translator_heads: pd.DataFrame) -> None:
    axes = entropy_by_layer(encoder_heads).axes[0]
    np.testing.assert_allclose(axes.collections[0].get_offsets()[:, 1], encoder_heads["entropy"])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), encoder_heads["entropy"].groupby(level="layer").mean())
    assert len(entropy_by_layer(translator_heads).axes[0].lines) == 3
    with pytest.raises(UsageError, match="Unknown column 'entropi'"):
        entropy_by_layer(encoder_heads, column="entropi")


def test_masses_by_layer_stand_above_the_gradient(encoder_heads: pd.DataFrame, decoder_heads: pd.DataFrame) -> None:
    top, below = mass_by_layer(encoder_heads).axes
    names = top.get_legend_handles_labels()[1]
    assert names[:2] == ["attention to the first token", "attention to separators"]
    np.testing.assert_allclose(
        below.lines[0].get_ydata(), encoder_heads["score_gradient"].groupby(level="layer").mean()
    )
    without = mass_by_layer(decoder_heads.drop(columns="score_gradient")).axes
    assert len(without) == 1 and "attention to separators" not in without[0].get_legend_handles_labels()[1]


def test_sink_map_outlines_the_sinks(encoder_heads: pd.DataFrame) -> None:
    axes = sink_map(encoder_heads).axes[0]
    np.testing.assert_allclose(axes.images[0].get_array().ravel(), encoder_heads["first_mass"])
    outlined = {(round(p.get_y() + 0.45), round(p.get_x() + 0.45)) for p in axes.patches if p.get_gid() == "sink"}
    assert outlined == {(layer, head) for (_, layer, head), sink in encoder_heads["sink"].items() if sink}


def test_pruning_by_kind_has_a_line_for_each_kind(fake: SimpleNamespace) -> None:
    sweep = pd.concat([fake.sweep(n, {"accuracy": 0.8}, kinds=kinds) for n, kinds in ((48, "encoder"), (16, "cross"))])
    figure = pruning_by_kind(sweep)
    assert [axes.get_title() for axes in figure.axes] == ["gradient", "ablation", "random"]
    for axes, strategy in zip(figure.axes, ("gradient", "ablation", "random"), strict=True):
        for line, kinds in zip(axes.lines, ("encoder", "cross"), strict=True):
            rows = sweep[(sweep["strategy"] == strategy) & (sweep["kinds"] == kinds)]
            expected = rows.groupby("n_removed")["value"].mean()
            np.testing.assert_allclose(line.get_ydata(), expected)
            np.testing.assert_allclose(line.get_xdata(), 100 * expected.index / rows["n_heads"].iloc[0])


def test_the_front_is_what_no_cut_beats(encoder_sweep: pd.DataFrame) -> None:
    front = pareto_front(encoder_sweep)
    better = [
        (
            (encoder_sweep["n_removed"] >= row.n_removed)
            & (encoder_sweep["drop"] <= row.drop)
            & ((encoder_sweep["n_removed"] > row.n_removed) | (encoder_sweep["drop"] < row.drop))
        ).any()
        for row in encoder_sweep.itertuples()
    ]
    undominated = encoder_sweep[~np.array(better)].drop_duplicates(["n_removed", "drop"])
    assert sorted(zip(front["n_removed"], front["drop"])) == sorted(zip(undominated["n_removed"], undominated["drop"]))
    axes = pareto(encoder_sweep).axes[0]
    line = next(line for line in axes.lines if line.get_gid() == "front")
    np.testing.assert_allclose(line.get_ydata(), front["drop"])
    with pytest.raises(UsageError, match="Unknown metric 'bleu'"):
        pareto(encoder_sweep, "bleu")


def test_cost_bars_are_as_long_as_the_costs() -> None:
    costs = pd.DataFrame(
        {"parameters": [100.0, 80.0], "kv_cache_bytes_per_token": [512, 256]}, index=["whole", "pruned"]
    )
    figure = cost_bars(costs)
    assert [bar.get_width() for axes in figure.axes for bar in axes.patches] == [100, 80, 512, 256]
    assert any("80 %" in text.get_text() for text in figure.axes[0].texts)
    with pytest.raises(DataError, match="no numbers"):
        cost_bars(costs.iloc[:0])


def test_heads_over_training_names_those_that_move(fake: SimpleNamespace) -> None:
    first = fake.heads({"decoder": (2, 3)})
    last = first.assign(prev_mass=first["prev_mass"] + [0, 0, 0.9, 0, 0.5, 0])
    axes = heads_over_training({100: first, 0: first, 900: last}, "prev_mass").axes[0]
    named = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert list(named)[:2] == ["L0H2", "L1H1"]
    np.testing.assert_allclose(named["L0H2"].get_xdata(), [0, 100, 900])
    np.testing.assert_allclose(named["L0H2"].get_ydata()[-1], last["prev_mass"].iloc[2])
    with pytest.raises(DataError, match="two are needed"):
        heads_over_training({0: first}, "prev_mass")


def test_all_of_them_draw_into_given_axes(
    encoder_heads: pd.DataFrame, encoder_sweep: pd.DataFrame, distributions: list[AttentionMap]
) -> None:
    def axes(count: int = 1):
        figure = Figure()
        made = list(figure.subplots(1, count, squeeze=False)[0])
        return figure, made[0] if count == 1 else made

    costs = pd.DataFrame({"parameters": [1.0]}, index=["m"])
    for draw, count in (
        (lambda ax: entropy_by_layer(encoder_heads, ax=ax), 1),
        (lambda ax: mass_by_layer(encoder_heads, ax=ax), 2),
        (lambda ax: sink_map(encoder_heads, ax=ax), 1),
        (lambda ax: pareto(encoder_sweep, ax=ax), 1),
        (lambda ax: pruning_by_kind(encoder_sweep, ax=ax), 3),
        (lambda ax: cluster_map(distributions, ax=ax), 1),
        (lambda ax: model_view(distributions, ax=ax), 1),
        (lambda ax: cost_bars(costs, ax=ax), 1),
        (lambda ax: heads_over_training({0: encoder_heads, 1: encoder_heads}, "entropy", ax=ax), 1),
    ):
        figure, given = axes(count)
        assert draw(given) is figure
