"""`headlab demo`: the commands it runs, one report of all, and ends that are passed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from headlab.cli import run
from headlab.commands import demo
from headlab.commands.dump import DumpRequest
from headlab.commands.sweep import SweepRequest


def test_the_demo_covers_every_checkpoint_and_both_kinds_of_curve() -> None:
    requests = [request for _, request in demo.REQUESTS]
    dumped = {request.model for request in requests if isinstance(request, DumpRequest)}
    assert dumped == {"demo:minilm", "demo:distilbert-tagger", "demo:smollm2"}
    swept = {(request.model, request.task) for request in requests if isinstance(request, SweepRequest)}
    assert swept == {("demo:minilm", "probe"), ("demo:smollm2", "minimal-pairs"), ("demo:smollm2", "lm")}
    assert len({name for name, _ in demo.REQUESTS}) == len(demo.REQUESTS)


def test_the_demo_prints_its_commands_and_writes_one_report(
    tiny_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = SweepRequest(model=str(tiny_lm), task="lm", max_length=32, limit=6, budgets="0,50%")
    requests = (("heads", DumpRequest(model=str(tiny_lm), limit=3)), ("curve", curve))
    monkeypatch.setattr(demo, "REQUESTS", requests)
    out = tmp_path / "demo"
    assert run(["demo", "--out", str(out), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert f"$ headlab dump {tiny_lm} --limit 3 --out {out / 'heads'}" in printed
    assert printed.rstrip().endswith(f"The report: {out / 'report.html'}")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("perplexity") > 1
    rows = {path: path.stat().st_mtime_ns for path in (out / "curve" / "rows").iterdir()}
    assert run(["demo", "--out", str(out), "--quiet"]) == 0, "a finished demo can be run again"
    assert {path: path.stat().st_mtime_ns for path in (out / "curve" / "rows").iterdir()} == rows


@pytest.mark.parametrize(("ends_with", "code"), [(KeyboardInterrupt, 130), (RuntimeError("no"), 1)])
def test_the_demo_ends_as_the_command_that_ended_it(
    ends_with: BaseException | type, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object, **__: object) -> None:
        raise ends_with

    monkeypatch.setattr("headlab.commands.options.ModelOptions.open_checkpoint", end)
    assert run(["demo", "--out", str(tmp_path / "demo"), "--quiet"]) == code
    assert not (tmp_path / "demo").exists()


@pytest.mark.demo
def test_a_demo_checkpoint_from_id_to_table(tmp_path: Path) -> None:
    from headlab.runs.tables import load_table

    out = tmp_path / "run"
    assert run(["dump", "demo:minilm", "--limit", "6", "--max-length", "64", "--out", str(out), "--quiet"]) == 0
    table = load_table(out, "heads")
    assert "previous_token" in table.loc[("encoder", 0, 2), "labels"]
    assert not table["separator"].fillna(False).any()
