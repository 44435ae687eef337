"""`headlab sweep` with the tables of single heads and of layers with one head, searches, kept heads, and bad input."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from headlab.base.errors import UsageError
from headlab.cli import run
from headlab.commands.single import SingleRequest
from headlab.commands.sweep import SweepRequest
from tests.support.commands import classification_sweep as command
from tests.support.commands import write_sentences


@pytest.fixture()
def sentences(tmp_path: Path) -> Path:
    return write_sentences(tmp_path, verdicts=(0, 1))


def test_single_heads_are_tabled_and_compared(tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys):
    assert run(command(tiny_classifier, sentences, tmp_path / "a", "--single")) == 0
    printed = capsys.readouterr().out
    assert "significant (Benjamini-Hochberg, 5 %): " in printed and " worse, " in printed and "p: paired t" in printed
    table = pd.read_csv(tmp_path / "a" / "single.csv")
    assert {"p", "q", "drop", "significant"} <= set(table.columns) and set(table["n_examples"]) == {20}
    again = command(tiny_classifier, sentences, tmp_path / "b", "--single", "--compare-with", str(tmp_path / "a"))
    assert run(again) == 0
    found = pd.read_csv(tmp_path / "b" / "correlation.csv").set_index("metric")
    assert found.loc["loss", "pearson"] == pytest.approx(1)


def test_layers_with_one_head_are_tabled(tiny_classifier: Path, sentences: Path, tmp_path: Path):
    assert run(command(tiny_classifier, sentences, tmp_path / "run", "--one-head-per-layer")) == 0
    table = pd.read_csv(tmp_path / "run" / "one_head_per_layer.csv")
    assert set(table["chosen_on"]) == {"select", "report"}


def test_areas_come_with_every_sweep_and_a_layer_is_not_emptied(
    tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys
):
    more = ("--scores", "gradient,ablation", "--budgets", "0,25%", "--keep-at-least", "1", "--seeds", "2")
    assert run(command(tiny_classifier, sentences, tmp_path / "run", *more)) == 0
    areas = pd.read_csv(tmp_path / "run" / "areas.csv")
    assert set(areas["strategy"]) == {"gradient", "ablation", "random"}
    capsys.readouterr()
    more = ("--budgets", "0,100%", "--keep-at-least", "1")
    assert run(command(tiny_classifier, sentences, tmp_path / "other", *more)) != 0
    assert "at least 1 kept in each" in capsys.readouterr().err
    assert not (tmp_path / "other").exists() or not any((tmp_path / "other").iterdir()), "refused before anything ran"


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"unit": "heads"}, "Did you mean 'head'"),
        ({"compensate": "median"}, "Unknown compensation"),
        ({"compensate": "mean", "ablation": "mean"}, "beside zero ablation"),
        ({"screen": True, "race": True}, "two ways"),
        ({"race": True}, "about the score ablation"),
        ({"screen": True, "scores": ["ablation"], "ablation": "mean"}, "cannot screen"),
        ({"stability": True, "scores": []}, "there is no score"),
        ({"seeds": 0}, "--seeds 0 is out of range"),
        ({"single": True, "one_head_per_layer": True}, "two tables"),
        ({"compare_with": Path("x"), "one_head_per_layer": True}, "compares tables"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, cause):
    request = SingleRequest if "one_head_per_layer" in options else SweepRequest
    with pytest.raises(UsageError, match=cause):
        request(model="m", task="lm", **options).check()


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("--single", "--scores", "ablation"), "--scores is about curves, and --single"),
        (("--one-head-per-layer", "--keep-at-least", "9"), "--keep-at-least is about curves"),
        (("--single", "--train", "gates"), "--train is about curves"),
        (("--train", "gates", "--unit", "group"), "choose freely and know no --unit group"),
        (("--train", "gates", "--keep", "nan"), "--keep 'nan' is not a list of numbers of heads"),
        (("--train", "gates", "--keep", "2.5"), "--keep '2.5' is not a list of numbers of heads"),
        (("--train", "gates", "--penalties", "inf"), "--penalties 'inf' is not a list of numbers"),
        (("--train", "gates", "--keep", "25"), "25"),
        (
            (
                "--kinds",
                "cross",
            ),
            "Unknown kind of attention 'cross'",
        ),
    ],
)
def test_options_that_would_be_idle_are_refused_before_anything_is_scored(
    options, cause, tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys
):
    assert run(command(tiny_classifier, sentences, tmp_path / "run", *options)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["Error", "Remedy"] and cause in lines[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "cause"), [(b"", "cannot be read"), (b"a,b\n1,2\n", "has no column drop"), (None, "is not there")]
)
def test_a_table_to_compare_with_is_read_before_anything_is_measured(
    content, cause, tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys
):
    other = tmp_path / "other"
    other.mkdir()
    if content is not None:
        (other / "single.csv").write_bytes(content)
    assert run(command(tiny_classifier, sentences, tmp_path / "run", "--single", "--compare-with", str(other))) == 1
    assert cause in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_report_shows_what_single_heads_cost(tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys):
    from headlab.runs.stored_run import find_runs

    out = tmp_path / "run"
    assert run(command(tiny_classifier, sentences, out, "--single")) == 0
    table = pd.read_csv(out / "single.csv").set_index(["kind", "layer", "head"])
    heads = find_runs([out])[0].heads
    assert heads is not None
    loss = table[table["metric"] == "loss"]
    pd.testing.assert_series_equal(heads["loss_drop"], loss["drop"], check_names=False)
    pd.testing.assert_series_equal(heads["loss_q"], loss["q"], check_names=False)
    assert run(["report", str(out)]) == 0 and "loss_drop" in (out / "report.html").read_text(encoding="utf-8")
    other = tmp_path / "other"
    assert run(command(tiny_classifier, sentences, other, "--one-head-per-layer")) == 0
    capsys.readouterr()
    assert run(["report", str(other)]) == 1
    assert "layers with one head, which a report does not draw" in capsys.readouterr().err


def test_several_seeds_at_one_cut_are_printed_as_mean_and_range():
    from headlab.cli.curve_table import curve_table

    rows = [("gates", 0, 0.5, 0.1), ("gates", 1, 0.7, 0.3), ("random", 0, 0.4, 0.4), ("made", 0, 0.8, 0.2)]
    table = pd.DataFrame(rows, columns=["strategy", "seed", "value", "drop"])
    table = table.assign(metric="loss", budget="x", n_removed=2, ci_low=0.0, ci_high=1.0, n_examples=9)
    trained = table.iloc[[3]].assign(n_removed=0, value=0.9, drop=0.05)  # fine-tuned, nothing removed
    found = curve_table(pd.concat([table, trained])).set_index("removed")
    assert found.loc[2, "gates"] == "0.600 (0.500 to 0.700)" and found.loc[2, "gates: drop [95 %]"].startswith(
        "0.200 ("
    )
    assert found.loc[2, "made: drop [95 %]"] == "0.200 [0.000, 1.000]"
    assert found.loc[0, "made: drop [95 %]"] == "0.050 [0.000, 1.000]"


def test_options_that_are_not_used_leave_the_signature_as_it_was():
    task = SimpleNamespace(signature=lambda: {"model": "m"}, options=SimpleNamespace(batch_size=32))
    plain = SweepRequest(model="m", task="lm").signature(task)
    settings = {"ablation": "zero", "within": "model", "kinds": None, "seed": 0}
    assert plain == {"command": "sweep", "model": "m", **settings}
    more = SweepRequest(model="m", task="lm", keep_at_least=1, race=True, train="gates").signature(task)
    training = {"train": "gates", "steps": 200, "batch_size": 32}
    assert more == plain | {"training": training, "keep_at_least": 1, "search": "race"}
