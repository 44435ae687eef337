"""`headlab sweep` with the tables of single heads and of layers with one head, searches, kept heads, and bad input."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from headlab.cli import run
from headlab.cli.sweep_options import SweepOptions
from headlab.errors import UsageError


@pytest.fixture()
def sentences(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.tsv"
    rows = [f"{'the' if i % 3 else 'a'} {'cat' if i % 2 else 'dog'} sleeps\t{i % 2}" for i in range(40)]
    path.write_text("sentence\tverdict\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def command(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    return ["sweep", str(model), "--task", "classification", "--data", str(data), "--text-column", "sentence",
            "--label-column", "verdict", "--out", str(out), "--quiet", *more]  # fmt: skip


def test_single_heads_are_tabled_and_compared(tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys):
    assert run(command(tiny_classifier, sentences, tmp_path / "a", "--single")) == 0
    printed = capsys.readouterr().out
    assert "significant (Benjamini-Hochberg, 5 %)" in printed
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
    ("options", "wanted", "cause"),
    [
        ({"unit": "heads"}, {}, "Did you mean 'head'"),
        ({"compensate": "median"}, {}, "Unknown compensation"),
        ({"compensate": "mean"}, {"ablation": "mean"}, "beside zero ablation"),
        ({"single": True, "one_head_per_layer": True}, {}, "two tables"),
        ({"screen": True, "race": True}, {}, "two ways"),
        ({"race": True}, {}, "about the score ablation"),
        ({"screen": True}, {"scores": ["ablation"], "ablation": "mean"}, "cannot screen"),
        ({"compare_with": Path("x")}, {}, "compares tables"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, wanted, cause):
    with pytest.raises(UsageError, match=cause):
        SweepOptions(**options).check(SimpleNamespace(**({"scores": ["gradient"], "ablation": "zero"} | wanted)))


def test_options_that_are_not_used_leave_the_signature_as_it_was():
    assert SweepOptions().signature() == {}
    assert SweepOptions(keep_at_least=1, race=True).signature() == {"keep_at_least": 1, "search": "race"}
