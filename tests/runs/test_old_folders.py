"""Run folders that headlab wrote before its rooms were rebuilt (version 0.1.0, schema 1) are read as they were.

`data/old` holds what `headlab dump demo:minilm --limit 4 --maps 1 --layers 0` and `headlab sweep demo:minilm --task
probe --limit 24` left then, without figures and, of the sweep, without the table of heads.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from headlab.base.errors import UsageError
from headlab.base.masks import HeadMask
from headlab.report.page.page import write_report
from headlab.report.pictures import write_figures
from headlab.runs.evaluations import evaluation_key, examples_table, read_evaluation
from headlab.runs.folder import clear_run, open_run
from headlab.runs.maps import load_maps
from headlab.runs.meta import read_meta
from headlab.runs.stored_run import find_runs
from headlab.runs.tables import load_table

OLD = Path(__file__).parent / "data" / "old"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy that may be written into."""
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def test_tables_are_what_they_were() -> None:
    heads, sweep = load_table(OLD / "dump", "heads"), load_table(OLD / "sweep", "sweep")
    assert heads.shape == (72, 59) and heads["entropy"].sum() == pytest.approx(128.15329413255614, rel=1e-12)
    assert dict(heads["labels"].value_counts())["broad"] == 14
    assert sweep.shape == (18, 18) and sweep["value"].sum() == pytest.approx(11.224880233407019, rel=1e-12)


def test_maps_keep_their_heads_and_tokens() -> None:
    maps = load_maps(OLD / "dump")
    assert [(m.kind, m.layer, m.head) for m in maps] == [("encoder", 0, head) for head in range(12)]
    assert all(m.query_tokens[:3] == ["[CLS]", "the", "ferry"] for m in maps)
    assert all(np.allclose(m.weights.sum(axis=1), 1, atol=2e-3) for m in maps)


def test_evaluations_are_found_by_their_keys() -> None:
    """The key of a mask is today what it was then, so that a sweep that was killed then goes on now."""
    signature = read_meta(OLD / "sweep")["signature"]
    examples = load_table(OLD / "sweep", "examples")
    keys = list(dict.fromkeys(examples["run"]))
    stored = [read_evaluation(OLD / "sweep", key) for key in keys]
    assert examples_table(one for one in stored if one is not None)["correct"].sum() == examples["correct"].sum() == 63
    of_task = {key: value for key, value in signature.items() if key not in ("command", "ablation", "within", "kinds")}
    whole = HeadMask({("encoder", layer): np.ones(12, dtype=bool) for layer in range(6)})
    assert evaluation_key(whole, "zero", "report", of_task) in keys


def test_they_are_resumed_only_by_their_own_signature(old: Path) -> None:
    signature = read_meta(old / "dump")["signature"]
    assert open_run(old / "dump", signature) == "resume"
    with pytest.raises(UsageError, match="differs in"):
        open_run(old / "dump", signature | {"seed": 7})


def test_a_report_and_figures_are_made_of_them(old: Path) -> None:
    assert [run.title for run in find_runs([old])] == ["demo:minilm (dump)", "demo:minilm (sweep)"]
    page = write_report(old).read_text(encoding="utf-8")
    assert "broad 14" in page and "accuracy is 0." in page
    names = {path.name for path in write_figures(old, ["png"])}
    assert {"labels.png", "heat-entropy.png", "curve-accuracy.png", "attention-self-0.png"} <= names


def test_all_that_is_theirs_is_known_as_such(old: Path) -> None:
    for name in ("dump", "sweep"):
        clear_run(old / name)
        assert [path for path in (old / name).rglob("*") if path.is_file()] == []
