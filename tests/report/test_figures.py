"""What is drawn equals the table: read from the artists, not from pixels."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headlab.base.errors import DataError, UsageError
from headlab.report.figures import (
    ONE_COLUMN,
    TWO_COLUMNS,
    attention_grid,
    heat_map,
    label_map,
    pruning_curve,
    save_figure,
)
from headlab.report.figures.curve import random_band
from headlab.report.figures.heat import short_number
from headlab.report.figures.labels import cell_text, legend_keys
from headlab.runs.maps import AttentionMap


def drawn_image(figure: Figure, panel: int = 0) -> np.ndarray:
    return figure.axes[panel].images[0].get_array().filled(np.nan)


def cells(figure: Figure, panel: int = 0) -> list[Rectangle]:
    return [patch for patch in figure.axes[panel].patches if isinstance(patch, Rectangle) and patch.get_gid()]


def lines(figure: Figure) -> dict[str, np.ndarray]:
    """Drawn (x, y) points by legend label."""
    handles, names = figure.axes[0].get_legend_handles_labels()
    found = {}
    for handle, name in zip(handles, names, strict=True):
        line = handle.lines[0] if hasattr(handle, "lines") else handle
        found[name] = np.column_stack(line.get_data()).astype(float)
    return found


@pytest.mark.parametrize("column", ["prev_mass", "score_ablation", "n_queries", "sink"])
def test_heat_map_draws_the_column(encoder_heads: pd.DataFrame, column: str) -> None:
    drawn = drawn_image(heat_map(encoder_heads, column))
    expected = encoder_heads[column].astype(float).to_numpy().reshape(6, 12)
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)


def test_heat_map_takes_heads_as_columns_and_in_any_order(encoder_heads: pd.DataFrame) -> None:
    shuffled = encoder_heads.sample(frac=1, random_state=0).reset_index()
    np.testing.assert_array_equal(
        drawn_image(heat_map(shuffled, "entropy")), drawn_image(heat_map(encoder_heads, "entropy"))
    )


def test_heat_map_has_a_panel_for_each_kind_and_one_scale(translator_heads: pd.DataFrame) -> None:
    figure = heat_map(translator_heads, "distance")
    assert [ax.get_title() for ax in figure.axes[:3]] == ["encoder", "decoder", "cross-attention"]
    for panel, kind in enumerate(("encoder", "decoder", "cross")):
        expected = translator_heads.xs(kind)["distance"].to_numpy().reshape(-1, 8)
        np.testing.assert_allclose(drawn_image(figure, panel), expected)
    assert len({ax.images[0].norm.vmax for ax in figure.axes[:3]}) == 1
    assert figure.axes[3].get_xlabel() == "mean distance (tokens)"


def test_undefined_values_are_hatched_and_missing_heads_are_not(encoder_heads: pd.DataFrame) -> None:
    table = encoder_heads.drop(index=("encoder", 5, 11))
    table.loc[("encoder", 2, 3), "entropy"] = np.nan
    table.loc[("encoder", 4, 4), "entropy"] = np.inf
    figure = heat_map(table, "entropy")
    assert sorted((c.get_y() + 0.5, c.get_x() + 0.5) for c in cells(figure)) == [(2, 3), (4, 4)]
    drawn = drawn_image(figure)
    assert np.isnan(drawn[5, 11]) and np.isnan(drawn[2, 3])


def test_a_column_of_nothing_but_missing_values_is_drawn(decoder_heads: pd.DataFrame) -> None:
    figure = heat_map(decoder_heads, "separator_mass")
    assert len(cells(figure)) == 270


def test_scale_is_neutral_at_zero_where_both_signs_occur(encoder_heads: pd.DataFrame) -> None:
    norm = heat_map(encoder_heads, "score_ablation").axes[0].images[0].norm
    assert norm(0.0) == pytest.approx(0.5) and norm.vmax == -norm.vmin


def test_one_head_is_enough(fake: SimpleNamespace) -> None:
    one = fake.heads({"decoder": (1, 1)})
    assert drawn_image(heat_map(one, "entropy")).shape == (1, 1)
    assert len(cells(label_map(one))) == 1


def test_heat_map_errors(encoder_heads: pd.DataFrame, translator_heads: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match="Did you mean 'entropy'"):
        heat_map(encoder_heads, "entropi")
    with pytest.raises(DataError, match="holds no numbers"):
        heat_map(encoder_heads, "labels")
    with pytest.raises(DataError, match="no rows"):
        heat_map(encoder_heads.iloc[:0], "entropy")
    with pytest.raises(UsageError, match="1 axes were given for 3 kinds"):
        heat_map(translator_heads, "entropy", ax=Figure().subplots())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.864, ".86"), (-0.03, "-.03"), (1.0, "1.0"), (0.996, "1.0"), (0.001, "0"), (12.4, "12"), (0, "0")],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short_number(value) == text


def test_label_map_colours_each_head_by_its_best_label(encoder_heads: pd.DataFrame, fake: SimpleNamespace) -> None:
    figure = label_map(encoder_heads)
    keys = legend_keys(fake.labels)
    drawn = {(round(c.get_y() + 0.46), round(c.get_x() + 0.46)): c for c in cells(figure)}
    assert len(drawn) == 72
    for (_, layer, head), row in encoder_heads.iterrows():
        carried = [name for name in fake.labels if row[name]]
        rivals = [name for name in carried if name != "positional" or carried == ["positional"]]
        margins = {n: (row[f"{n}_score"] - row[f"{n}_threshold"]) / (1 - row[f"{n}_threshold"]) for n in rivals}
        best = max(margins, key=lambda name: margins[name], default="none")
        cell = drawn[layer, head]
        assert cell.get_gid() == best
        if carried:
            assert to_hex(cell.get_facecolor()) == keys[best][1].lower()
    texts = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in figure.axes[0].texts}
    several = encoder_heads[encoder_heads[fake.labels].sum(axis=1) > 1].iloc[0]
    assert len(texts[several.name[1:]]) == sum(map(bool, several[fake.labels]))


def test_label_map_legend_counts_every_carrier(decoder_heads: pd.DataFrame, fake: SimpleNamespace) -> None:
    texts = [text.get_text() for text in label_map(decoder_heads).legends[0].get_texts()]
    counts = Counter(name for labels in decoder_heads["labels"] for name in labels.split(","))
    assert f"P  previous token: {counts['previous_token']}" in texts
    assert f"none: {counts['none']}" in texts
    assert "S  separator: undefined" in texts  # never decided: no count


def test_label_map_legend_has_a_colour_only_where_a_cell_has_it(encoder_heads: pd.DataFrame) -> None:
    hidden = encoder_heads.assign(positional=True, sink=True, sink_score=0.99).astype({"positional": "boolean"})
    hidden[["self", "broad"]] = False  # defined, carried by no head
    figure = label_map(hidden)
    legend = figure.legends[0]
    drawn = {to_hex(cell.get_facecolor()) for cell in cells(figure)}
    for handle, text in zip(legend.get_patches(), legend.get_texts(), strict=True):
        words = text.get_text()
        if not words.startswith("none"):
            assert handle.get_facecolor()[3] == 0 or to_hex(handle.get_facecolor()) in drawn, words
    texts = [text.get_text() for text in legend.get_texts()]
    assert {"O  fixed offset: 72", "I  itself: 0", "K  sink: 72"} <= set(texts)
    assert legend.get_patches()[texts.index("O  fixed offset: 72")].get_facecolor()[3] == 0  # always gives way
    assert "Colour: main label" in legend.get_title().get_text()


@pytest.mark.parametrize(
    ("marks", "text"), [("", ""), ("PLO", "PLO"), ("PLOo", "PLO\no"), ("PLOoKV", "PLO\noKV"), ("PLOoKVC", "PLO\no+3")]
)
def test_every_label_of_a_head_is_in_its_cell_or_counted(marks: str, text: str) -> None:
    assert cell_text(list(marks)) == text


def test_label_map_hatches_heads_without_a_defined_label(decoder_heads: pd.DataFrame) -> None:
    assert {cell.get_gid() for cell in cells(label_map(decoder_heads, labels=["separator"]))} == {"undefined"}


def test_labels_from_elsewhere_get_a_mark_and_a_colour_of_their_own() -> None:
    keys = legend_keys(["sink", "induction", "syntactic:det:dependent-head", "rare_token"])
    assert len({mark for mark, _ in keys.values()}) == len({colour for _, colour in keys.values()}) == 4


def test_label_map_errors(encoder_heads: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="no labels"):
        label_map(encoder_heads[["entropy"]])
    with pytest.raises(UsageError, match="Did you mean 'sink'"):
        label_map(encoder_heads, labels=["sinc"])


def test_attention_grid_draws_the_maps_with_readable_tokens(fake: SimpleNamespace) -> None:
    maps = fake.maps(fake.byte_level, [("decoder", 1, head) for head in range(6)], causal=True)
    figure = attention_grid(maps)
    for panel, item in enumerate(maps):
        np.testing.assert_allclose(figure.axes[panel].images[0].get_array(), item.weights, rtol=1e-6)
        assert figure.axes[panel].get_title() == f"L1H{panel}"
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["The", "caf", "é", "closed", "early", ",", "so", "we", "walked", "↵", "home", "."]
    assert figure.axes[1].get_yticks().size == 0  # the same tokens, left to the outer panels
    assert len(figure.axes[5].get_xticklabels()) == 12


def test_attention_grid_labels_every_panel_where_texts_differ(fake: SimpleNamespace) -> None:
    maps = fake.maps(["a", "b"], [("cross", 0, 0)], keys=["x", "y", "z"]) + fake.maps(["c"], [("cross", 0, 1)])
    figure = attention_grid(maps, names=["X0H0", "X0H1"])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["x", "y", "z"]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["c"]
    assert figure.axes[1].get_title() == "X0H1"


def test_long_maps_keep_their_largest_weights_and_show_positions() -> None:
    weights = np.zeros((601, 601), dtype=np.float32)
    weights[np.arange(1, 601), np.arange(600)] = 1
    tokens = [f"t{i}" for i in range(601)]
    axes = attention_grid([AttentionMap("decoder", 0, 0, 0, weights, tokens, tokens)]).axes[0]
    drawn = axes.images[0].get_array()
    assert drawn.shape == (201, 201) and drawn.max() == 1
    assert axes.get_xlabel() == "position"
    assert "largest of 3 × 3" in axes.texts[0].get_text()


def test_odd_tokens_are_drawn_without_a_crash_or_a_warning(tmp_path: Path, fake: SimpleNamespace) -> None:
    odd = ["$x$", "$\\frac", "<script>", "\ud800", "\x00", "\n", "שלום", "🙂", "你好", "a" * 300, ""]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = save_figure(attention_grid(fake.maps(odd, [("encoder", 0, 0)])), tmp_path / "odd")
    assert all(path.stat().st_size > 1000 for path in paths)


def test_attention_grid_needs_maps() -> None:
    with pytest.raises(DataError, match="no attention maps"):
        attention_grid([])


@pytest.mark.parametrize("metric", ["accuracy", "perplexity"])
def test_pruning_curve_draws_values_intervals_band_and_baseline(decoder_sweep: pd.DataFrame, metric: str) -> None:
    figure = pruning_curve(decoder_sweep, metric)
    rows = decoder_sweep[decoder_sweep["metric"] == metric]
    axes, drawn = figure.axes[0], lines(figure)
    own = rows[rows["strategy"] == "gradient"]
    np.testing.assert_allclose(drawn["gradient"], np.column_stack([100 * own["n_removed"] / 270, own["value"]]))
    random = rows[rows["strategy"] == "random"].groupby("n_removed")["value"]
    np.testing.assert_allclose(drawn["random (3 orders: mean, range)"][:, 1], random.mean())
    band = next(c for c in axes.collections if isinstance(c, PolyCollection))
    corners = band.get_paths()[0].vertices[:, 1]
    assert corners.max() == pytest.approx(random.max().max()) and corners.min() == pytest.approx(random.min().min())
    baseline = next(line for line in axes.lines if line.get_gid() == "baseline")
    assert list(baseline.get_ydata()) == [rows["baseline"].iloc[0]] * 2
    handles, names = axes.get_legend_handles_labels()
    bars = handles[names.index("gradient")].lines[2][0].get_paths()
    falls = metric == "accuracy"
    low = own["baseline"] - own["ci_high"] if falls else own["baseline"] + own["ci_low"]
    high = own["baseline"] - own["ci_low"] if falls else own["baseline"] + own["ci_high"]
    np.testing.assert_allclose([bar.vertices[:, 1] for bar in bars], np.column_stack([low, high]), rtol=1e-9)


def test_pruning_curve_names_metric_unit_and_direction(decoder_sweep: pd.DataFrame) -> None:
    assert pruning_curve(decoder_sweep).axes[0].get_ylabel() == "accuracy (share correct)\nhigher is better"
    axes = pruning_curve(decoder_sweep, "perplexity").axes[0]
    assert axes.get_ylabel() == "perplexity\nlower is better"
    assert axes.get_xlabel() == "heads removed (% of 270)"


def test_band_of_many_orders_is_the_middle_95_per_cent(fake: SimpleNamespace) -> None:
    rows = fake.sweep(72, {"accuracy": 0.9}, seeds=40)
    random = rows[rows["strategy"] == "random"]
    half = random[random["n_removed"] == 36]["value"]
    band = random_band(random).loc[50.0]
    assert band["low"] == pytest.approx(half.quantile(0.025)) and band["high"] == pytest.approx(half.quantile(0.975))


def test_infinite_and_missing_values_are_left_out(encoder_sweep: pd.DataFrame, tmp_path: Path) -> None:
    sweep = encoder_sweep.copy()
    sweep.loc[sweep["n_removed"] == 65, ["value", "drop", "ci_high"]] = np.inf
    sweep.loc[sweep["n_removed"] == 58, ["value", "drop", "ci_low", "ci_high"]] = np.nan
    figure = pruning_curve(sweep)
    assert len(lines(figure)["gradient"]) == 8
    save_figure(figure, tmp_path / "curve", ["svg"])


def test_a_metric_without_a_single_number_is_drawn_empty(encoder_sweep: pd.DataFrame, tmp_path: Path) -> None:
    nothing = encoder_sweep.assign(value=np.nan, baseline=np.nan, drop=np.nan, ci_low=np.nan, ci_high=np.nan)
    figure = pruning_curve(nothing)
    assert len(lines(figure)["gradient"]) == 0
    save_figure(figure, tmp_path / "empty")


def test_settings_that_vary_are_named(encoder_sweep: pd.DataFrame) -> None:
    both = pd.concat([encoder_sweep, encoder_sweep.assign(ablation="mean")])
    assert {"gradient, zero", "gradient, mean"} <= set(lines(pruning_curve(both)))


def test_pruning_curve_errors(encoder_sweep: pd.DataFrame) -> None:
    with pytest.raises(UsageError, match="Unknown metric 'bleu'"):
        pruning_curve(encoder_sweep, "bleu")
    with pytest.raises(DataError, match="no rows"):
        pruning_curve(encoder_sweep.iloc[:0])


def test_figures_draw_into_given_axes(
    encoder_heads: pd.DataFrame, encoder_sweep: pd.DataFrame, fake: SimpleNamespace, tmp_path: Path
) -> None:
    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    assert heat_map(encoder_heads, "entropy", ax=axes[0]) is figure
    assert label_map(encoder_heads, ax=axes[1]) is figure
    assert pruning_curve(encoder_sweep, ax=axes[2]) is figure
    assert attention_grid(fake.maps(fake.sentence, [("encoder", 0, 0)]), ax=axes[3]) is figure
    assert all(ax.has_data() or ax.patches for ax in axes)
    save_figure(figure, tmp_path / "all")


def test_sizes_fit_one_or_two_columns(encoder_heads: pd.DataFrame, fake: SimpleNamespace) -> None:
    assert heat_map(encoder_heads, "entropy").get_size_inches()[0] == ONE_COLUMN
    assert label_map(fake.heads({"decoder": (4, 32)})).get_size_inches()[0] == TWO_COLUMNS


def test_saved_figures_look_the_same_everywhere(tmp_path: Path, encoder_heads: pd.DataFrame) -> None:
    figure = heat_map(encoder_heads, "entropy")
    svg, png = save_figure(figure, tmp_path / "figures" / "heat-entropy", ["svg", "png"])
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    assert "<text" not in text and "@font-face" not in text  # letters are outlines
    again = save_figure(heat_map(encoder_heads, "entropy"), tmp_path / "again", ["svg"])[0]
    assert again.read_text() == text
    assert save_figure(figure, tmp_path / "a.b", ["pdf"])[0].name == "a.b.pdf"
    with pytest.raises(UsageError, match="figure format"):
        save_figure(figure, tmp_path / "x", ["gif"])


def test_settings_of_the_user_stay(encoder_heads: pd.DataFrame) -> None:
    before = dict(mpl.rcParams)
    heat_map(encoder_heads, "entropy")
    assert dict(mpl.rcParams) == before


def test_no_display_is_needed_and_no_backend_is_chosen(tmp_path: Path) -> None:
    code = (
        "import sys, pandas as pd, headlab.report.figures as f; from headlab.runs.tables import HEAD_INDEX\n"
        "t = pd.DataFrame({'x': [1.]}, index=pd.MultiIndex.from_tuples([('encoder', 0, 0)], names=HEAD_INDEX))\n"
        "f.save_figure(f.heat_map(t, 'x'), sys.argv[1]); assert 'matplotlib.pyplot' not in sys.modules"
    )
    environment = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "MPLBACKEND"}}
    command = [sys.executable, "-c", code, str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.png").is_file()


def test_matched_controls_are_a_mean_with_their_range(encoder_sweep: pd.DataFrame) -> None:
    one = encoder_sweep[encoder_sweep["strategy"] == "gradient"].assign(strategy="matched:sink")
    other = one.assign(seed=one["seed"] + 1, value=one["value"] - 0.1)
    metric = str(one["metric"].iloc[0])
    axes = pruning_curve(pd.concat([encoder_sweep, one, other]), metric).axes[0]
    (drawn,) = [c for c in axes.containers if c.get_label() == "matched:sink (mean, range)"]
    expected = one[one["metric"] == metric].drop_duplicates("n_removed").sort_values("n_removed")["value"] - 0.05
    np.testing.assert_allclose(np.asarray(drawn.lines[0].get_ydata(), dtype=float), expected.astype(float), atol=1e-9)
    (ends,) = drawn.lines[2]
    np.testing.assert_allclose([np.ptp(segment[:, 1]) for segment in ends.get_segments()], 0.1, atol=1e-9)


def test_a_share_that_falls_to_nearly_nothing_is_not_drawn_on_a_logarithmic_scale(encoder_sweep: pd.DataFrame) -> None:
    metric = "accuracy"
    rows = encoder_sweep[encoder_sweep["metric"] == metric].assign(value=0.01, baseline=0.9)
    axes = pruning_curve(rows, metric).axes[0]
    assert axes.get_yscale() == "linear" and axes.get_ylim()[0] >= 0
