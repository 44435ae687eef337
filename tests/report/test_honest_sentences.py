"""Sentences that follow from their intervals, and numbers that no reader can take for more than they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from headlab.report.figures import pruning_curve
from headlab.report.figures.curve import value_interval
from headlab.report.page.compare import compare_runs
from headlab.report.page.summary import compare_sentences, summarize
from headlab.report.pictures import pictures
from headlab.report.series import curve_series
from headlab.runs.meta import write_meta
from headlab.runs.stored_run import find_runs

Write = Callable[..., Path]


def one_cut(fake: SimpleNamespace, metric: str, baseline: float, drop: float, low: float, high: float) -> pd.DataFrame:
    """A sweep with one cut in the gradient order, of 18 of 72 heads."""
    sweep = fake.sweep(72, {metric: baseline})
    sweep = sweep[(sweep["strategy"] == "gradient") & sweep["budget"].isin(["0", "20%"])].copy()
    rises = metric in {"loss", "perplexity"}
    sweep.loc[sweep["n_removed"] > 0, ["value", "drop", "ci_low", "ci_high"]] = [
        baseline + drop if rises else baseline - drop,
        drop,
        low,
        high,
    ]
    return sweep


def sentence(write_run: Write, sweep: pd.DataFrame) -> str:
    return next(s for s in summarize(find_runs([write_run("sweep", sweep=sweep)])[0]) if "gradient order" in s)


@pytest.mark.parametrize(
    ("metric", "numbers", "words"),
    [
        ("loss", (2.0, -0.664, -1.399, -0.019), "clearly improves loss: a fall of 0.664 [0.019, 1.399], for the bet"),
        ("accuracy", (0.7, -0.167, -0.3, -0.1), "clearly improves accuracy: a rise of 0.167 [0.100, 0.300], for the b"),
        (
            "perplexity",
            (50.0, -16.289, -40.0, 2.0),
            "(every 95 % interval of the drop reaches 0); a fall of 16.289 [-2.000, 40.000], for the better",
        ),
        ("loss", (2.0, 0.5, 0.1, 0.9), "clearly worsens loss is 14 of 72 heads (19 %): a rise of 0.500 [0.100, 0.900]"),
        ("accuracy", (0.7, 0.0, -0.1, 0.1), "(every 95 % interval of the drop reaches 0); no change [-0.100, 0.100]"),
        ("accuracy", (0.7, 0.2, np.nan, np.nan), "clearly worsens accuracy; a drop of 0.200 [–, –] at the last one"),
    ],
)
def test_a_sentence_says_what_its_interval_says(
    write_run: Write, fake: SimpleNamespace, metric: str, numbers: tuple[float, ...], words: str
) -> None:
    said = sentence(write_run, one_cut(fake, metric, *numbers))
    assert words in said
    assert "of -" not in said
    if "improves" in words:
        assert "reaches 0" not in said and "No tested cut clearly worsens it." in said


def test_cuts_that_improve_are_counted_beside_one_that_worsens(write_run: Write, encoder_sweep: pd.DataFrame) -> None:
    own = encoder_sweep["strategy"] == "gradient"
    better = own & encoder_sweep["budget"].isin(["10%", "20%"])
    encoder_sweep.loc[better, ["drop", "ci_low", "ci_high"]] = [-0.05, -0.08, -0.02]
    said = sentence(write_run, encoder_sweep)
    assert "clearly worsens accuracy is" in said
    assert "Some cuts clearly improve accuracy: 2 of the 9 tested cuts do" in said


def test_random_orders_that_improve_are_given_by_their_values(write_run: Write, fake: SimpleNamespace) -> None:
    sweep = one_cut(fake, "loss", 2.0, -0.5, -0.9, -0.1)
    random = sweep.assign(strategy="random", value=1.75, drop=-0.25)
    said = sentence(write_run, pd.concat([sweep, random]))
    assert "for the better, reaching 1.500, against a mean of 1.750 in one random order." in said


@pytest.mark.parametrize(("n", "warned"), [(12, True), (29, True), (30, False)])
def test_few_examples_are_warned_of(write_run: Write, encoder_sweep: pd.DataFrame, n: int, warned: bool) -> None:
    run = find_runs([write_run("few", sweep=encoder_sweep.assign(n_examples=n))])[0]
    found = [s for s in summarize(run) if "Caution" in s]
    assert len(found) == warned
    assert (
        not warned or f"the intervals on the report split come from only {n} examples; with fewer than 30" in found[0]
    )
    caption = next(p.caption for p in pictures(run) if p.stem == "curve-accuracy")
    assert f"{n} examples" in caption and ("fewer than 30: intervals are rough" in caption) == warned


def test_few_texts_are_warned_of(write_run: Write, encoder_heads: pd.DataFrame, encoder_sweep: pd.DataFrame) -> None:
    folder = write_run("texts", heads=encoder_heads)
    write_meta(folder, {"texts": {"n_texts": 8}}, command="headlab dump", notes={"chunks": 9})
    said = summarize(find_runs([folder])[0])
    assert any("(bootstrap over 9 texts)" in s for s in said)
    assert any(s.startswith("Caution: the intervals of the labels come from only 9 texts;") for s in said)
    folder = write_run("halves", heads=encoder_heads, sweep=encoder_sweep.assign(n_examples=3))
    write_meta(folder, {"n_examples": 5}, command="headlab sweep")  # labels are of the half that is not judged on
    said = summarize(find_runs([folder])[0])
    assert any("labels come from only 2 texts" in s for s in said)
    caption = next(p.caption for p in pictures(find_runs([folder])[0]) if p.stem == "labels")
    assert "2 texts (fewer than 30: intervals are rough)" in caption


def test_intervals_and_axis_of_a_bounded_metric_stay_within_it(fake: SimpleNamespace) -> None:
    sweep = one_cut(fake, "accuracy", 0.875, 0.05, -0.375, 0.95)
    low, high = value_interval(sweep)
    assert high.max() == 1.0 and low.min() == 0.0
    bottom, top = pruning_curve(sweep).axes[0].get_ylim()
    assert bottom >= 0.0 and top <= 1.0
    curve = curve_series(sweep)[0]
    assert curve["bounds"] == [0.0, 1.0] and max(point["high"] for point in curve["lines"][0]["points"]) == 1.0
    assert max(point["ci_high"] for point in curve["lines"][0]["points"]) == 0.95  # the drop keeps its own interval


def test_intervals_of_an_unbounded_metric_are_left_alone(fake: SimpleNamespace) -> None:
    sweep = one_cut(fake, "perplexity", 20.0, 5.0, -1.0, 30.0)
    assert value_interval(sweep)[1].max() == 50.0 and curve_series(sweep)[0]["bounds"] == []


def test_runs_are_compared_on_the_labels_that_both_decide(write_run: Write, encoder_heads: pd.DataFrame) -> None:
    few = encoder_heads[["entropy", "broad", "broad_score", "sink", "sink_score", "labels"]].copy()
    few.iloc[:5, few.columns.get_loc("sink")] = ~few["sink"].iloc[:5]
    runs = find_runs([write_run("all", heads=encoder_heads), write_run("few", heads=few)])
    said = compare_sentences(runs, compare_runs(runs))
    assert any("5 of them differ in the 2 labels that both decide" in s for s in said)
    none = encoder_heads[["entropy", "self", "self_score"]]
    runs = find_runs([write_run("few", heads=few), write_run("none", heads=none)])
    assert any("no label was decided in both" in s for s in compare_sentences(runs, compare_runs(runs)))


def test_a_picture_of_maps_says_which_layers_it_shows(write_run: Write, fake: SimpleNamespace) -> None:
    heads = [("encoder", layer, head) for layer in range(3) for head in range(12)]
    folder = write_run("maps", heads=fake.heads({"encoder": (3, 12)})[["entropy"]], maps=fake.maps(["a", "b"], heads))
    found = {picture.stem: picture for picture in pictures(find_runs([folder])[0])}
    grid = found["attention-self-0"]
    words = "Text 0, self-attention, layer 0 only: the first 12 of 36 stored maps, which are of layers 0 to 2"
    assert grid.figure.get_suptitle() == words and words in grid.caption
    assert "All 36 stored maps of text 0: encoder, layers 0 to 2" in found["model-view-encoder"].caption


def test_what_never_happened_has_no_sentence(write_run: Write, fake: SimpleNamespace) -> None:
    bleu = one_cut(fake, "bleu", 30.0, 1.0, 0.5, 1.5)
    empty = one_cut(fake, "empty_outputs", 0.0, 0.0, 0.0, 0.0).assign(value=0.0)
    said = " ".join(summarize(find_runs([write_run("sweep", sweep=pd.concat([bleu, empty]))])[0]))
    assert "BLEU" in said and "empty outputs" not in said
    happened = pd.concat([bleu, empty.assign(value=empty["n_removed"] / 100)])
    assert "empty outputs" in " ".join(summarize(find_runs([write_run("other", sweep=happened)])[0]))
