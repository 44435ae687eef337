"""Requests from Python: each command gives the tables that the command line writes, and refuses what cannot be."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from headlab.base.errors import DataError, UsageError
from headlab.cli import run as command_line
from headlab.commands import demo, dump, inspect, report, single, sweep
from headlab.commands.options import options_of
from headlab.runs.meta import read_meta
from headlab.runs.tables import load_table

PLUGIN = """
import numpy as np
from headlab.scores.score import Score, Scores

class Backwards(Score):
    name = "backwards"
    title = "backwards"
    text = "Earlier heads are worth more."
    definition = "number of heads minus place of the head"
    source = "made up"

    def __call__(self, context):
        return Scores(np.arange(len(context.heads.index), 0, -1.0))
"""


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "sentences.tsv"
    rows = [f"{'the' if i % 3 else 'a'} {'cat' if i % 2 else 'dog'} sleeps\t{i % 2}" for i in range(24)]
    path.write_text("sentence\tverdict\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


class Heard:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []

    def __call__(self, done: int, total: int | None = None, what: str = "") -> None:
        assert done >= 0

    def stage(self, what: str) -> None:
        self.stages.append(what)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def of_command(text: str) -> int:
    return command_line(shlex.split(text))


def test_a_dump_is_the_table_of_the_command(tiny_lm: Path, tmp_path: Path) -> None:
    heard = Heard()
    request = dump.DumpRequest(model=str(tiny_lm), limit=3, labels=["sink", "self"], maps=1, layers=[0], heads="L0H1")
    result = dump.run(request, tmp_path / "python", heard)
    options = "--limit 3 --labels sink,self --maps 1 --layers 0 --heads L0H1 --quiet"
    assert of_command(f"dump {tiny_lm} {options} --out {tmp_path / 'line'}") == 0
    pd.testing.assert_frame_equal(result.heads, load_table(tmp_path / "line", "heads"))
    metas = [read_meta(tmp_path / name) for name in ("python", "line")]
    assert metas[0]["signature"] == metas[1]["signature"] and metas[0]["notes"] == metas[1]["notes"]
    assert metas[0]["command"] == request.command_line(tmp_path / "python")
    assert {path.name for path in result.paths} == {
        path.name for path in (tmp_path / "line").iterdir() if path.is_file()
    } | {path.name for path in (tmp_path / "line" / "figures").glob("*.png")}
    assert [step for step in heard.stages if not step.startswith("loading")][:2] == [
        f"opening {tiny_lm}",
        "probing and proving",
    ]
    assert of_command(f"{shlex.join(shlex.split(metas[0]['command'])[1:])} --quiet") == 0, "and is resumed by it"


def test_a_sweep_is_the_tables_of_the_command(tiny_classifier: Path, sentences: Path, tmp_path: Path) -> None:
    columns = {"data": sentences, "text_column": "sentence", "label_column": "verdict"}
    heard = Heard()
    request = sweep.SweepRequest(
        model=str(tiny_classifier), task="classification", budgets=[0, "1%", 0.5], seeds=2, stability=True, **columns
    )
    result = sweep.run(request, tmp_path / "python", heard)
    options = "--budgets 0,1%,50% --seeds 2 --stability --text-column sentence --label-column verdict --quiet"
    data = f"--task classification --data {sentences}"
    assert of_command(f"sweep {tiny_classifier} {data} {options} --out {tmp_path / 'line'}") == 0
    by_command = load_table(tmp_path / "line", "sweep")
    pd.testing.assert_frame_equal(result.curve.drop(columns="seconds"), by_command.drop(columns="seconds"))
    pd.testing.assert_frame_equal(result.heads, load_table(tmp_path / "line", "heads"), check_names=False)
    for name in ("areas", "stability"):
        pd.testing.assert_frame_equal(
            getattr(result, name).reset_index(drop=True), pd.read_csv(tmp_path / "line" / f"{name}.csv")
        )
    assert result.warnings == heard.warnings == ["the budget 1% of 8 heads removes no head."]
    assert read_meta(tmp_path / "python")["signature"] == read_meta(tmp_path / "line")["signature"]


@pytest.mark.parametrize("flag", ["--single", "--one-head-per-layer"])
def test_single_heads_are_the_table_of_the_command(
    flag: str, tiny_classifier: Path, sentences: Path, tmp_path: Path
) -> None:
    columns = {"data": sentences, "text_column": "sentence", "label_column": "verdict"}
    request = single.SingleRequest(
        model=str(tiny_classifier),
        task="classification",
        kinds=["encoder"],
        one_head_per_layer=flag != "--single",
        **columns,
    )
    result = single.run(request, tmp_path / "python")
    assert flag in request.command_line()
    options = f"--kinds encoder --text-column sentence --label-column verdict {flag} --quiet"
    data = f"--task classification --data {sentences}"
    assert of_command(f"sweep {tiny_classifier} {data} {options} --out {tmp_path / 'line'}") == 0
    written = [pd.read_csv(tmp_path / name / f"{request.table}.csv") for name in ("python", "line")]
    pd.testing.assert_frame_equal(*written)
    assert len(result.table) == len(written[0]) and result.correlation is None
    assert read_meta(tmp_path / "python")["signature"] == read_meta(tmp_path / "line")["signature"]


def test_inspect_gives_the_facts_of_the_command(tiny_lm: Path, capsys: pytest.CaptureFixture) -> None:
    facts = inspect.run(inspect.InspectRequest(model=str(tiny_lm)))
    assert of_command(f"inspect {tiny_lm} --json --quiet") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(facts))


def test_the_demo_runs_every_request_and_reports_them(
    tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(demo, "REQUESTS", (("heads", dump.DumpRequest(model=str(tiny_lm), limit=2, labels=())),))
    page = demo.run(demo.DemoRequest(), tmp_path)
    again = report.run(report.ReportRequest(folders=[tmp_path / "heads"], figures=["svg"]), tmp_path / "again.html")
    assert again.report.stat().st_size > 1000 and page.stat().st_size > 1000
    assert again.figures and all(path.suffix == ".svg" for path in again.figures)
    assert capsys.readouterr().out == "", "only the command line prints"


def test_lists_may_be_the_text_of_the_command_line() -> None:
    request = dump.DumpRequest(model="m", labels="sink, self", layers="0,3-5", conllu="a.conllu")
    assert (request.labels, request.layers, request.conllu) == (("sink", "self"), (0, 3, 4, 5), Path("a.conllu"))
    assert request.command_line("run") == (
        "headlab dump m --labels sink,self --layers 0,3,4,5 --conllu a.conllu --out run"
    )
    assert sweep.SweepRequest(model="m", task="lm", keep="2,4").keep == (2, 4)


@pytest.mark.parametrize(
    ("request_of", "cause"),
    [
        (lambda: dump.DumpRequest(model="m", labels=["seperator"]), "Did you mean 'separator'"),
        (lambda: dump.DumpRequest(model="m", labels=["coreference"]), "there is no --mentions"),
        (lambda: dump.DumpRequest(model="m", limit=0), "--limit 0 is out of range"),
        (lambda: dump.DumpRequest(model="m", beams=2), "--beams belongs to the task translation"),
        (lambda: sweep.SweepRequest(model="m", task="lm", budgets=[1.5]), "out of range"),
        (lambda: sweep.SweepRequest(model="m", task="lm", steps=3), "no effect without training"),
        (lambda: single.SingleRequest(model="m", task="probes"), "Did you mean 'probe'"),
        (lambda: report.ReportRequest(folders=["a"], figures=["gif"]), "figure format"),
        (lambda: sweep.SweepRequest(model="m", task="lm", format="xls"), "Unknown format 'xls'"),
    ],
)
def test_what_cannot_be_is_refused_without_opening_a_model(request_of, cause: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=cause):
        request_of().check()


def test_a_label_file_that_is_not_there_is_refused_before_the_model_is_opened(tmp_path: Path) -> None:
    request = dump.DumpRequest(model="no model", mentions=tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match=r"missing\.jsonl cannot be read"):
        dump.run(request, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_option_has_help_and_every_request_a_command() -> None:
    for request in (dump.DumpRequest, sweep.SweepRequest, single.SingleRequest, inspect.InspectRequest):
        assert request.NAME and all(known.help for known in options_of(request).values())


def test_requests_are_light() -> None:
    modules = "demo, dump, inspect, report, single, sweep"
    heavy = ["torch", "transformers", "pandas", "numpy", "typer", "rich"]
    code = f"import sys; from headlab.commands import {modules}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_score_of_ones_own_is_swept_from_a_plugin_file(
    tiny_classifier: Path, sentences: Path, tmp_path: Path
) -> None:
    from headlab.scores import SCORES

    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    data = f"--task classification --data {sentences} --text-column sentence --label-column verdict"
    options = f"--scores backwards --budgets 0,2 --seeds 1 --plugin {plugin} --quiet --out {tmp_path / 'run'}"
    try:
        assert of_command(f"sweep {tiny_classifier} {data} {options}") == 0
    finally:
        SCORES.discard("backwards")
    scores = load_table(tmp_path / "run", "heads")["score_backwards"]
    assert scores.tolist() == list(range(len(scores), 0, -1))
    assert "backwards" in set(load_table(tmp_path / "run", "sweep")["strategy"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"limit": "8"}, "--limit '8' is of the type str, not int"),
        ({"limit": [8]}, r"--limit \(8,\) is of the type tuple, not int"),
        ({"limit": True}, "--limit True is of the type bool, not int"),
        ({"limit": 0}, "--limit 0 is out of range"),
        ({"per_word": 1}, "--per-word 1 is of the type int, not bool"),
        ({"labels": 3}, "--labels 3 is of the type int, not Sequence"),
        ({"text": 3}, "--text 3 is of the type int, not Path"),
        ({"model": None}, "--model"),
        ({"seed": -1}, "--seed -1 is out of range"),
    ],
)
def test_a_value_of_another_type_or_out_of_range_is_refused_when_the_request_is_made(options: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        dump.DumpRequest(**({"model": "demo:minilm"} | options))
