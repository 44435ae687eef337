"""A run folder is resumed only by its own run, and only its own files are ever removed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headlab.base.errors import DataError, UsageError
from headlab.base.json_text import to_json
from headlab.runs import folder
from tests.support.run_tables import heads_table, sweep_table


def test_meta_holds_signature_command_and_utc_time(tmp_path: Path) -> None:
    folder.write_meta(tmp_path, {"n": np.int64(3), "p": np.float32(0.5), "path": Path("x")}, command="headlab dump x")
    meta = folder.read_meta(tmp_path)
    assert meta["signature"] == {"n": 3, "p": 0.5, "path": "x"}
    assert (meta["command"], meta["schema"], meta["finished"]) == ("headlab dump x", 1, True)
    assert meta["time"].endswith("+00:00")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "cannot be read"), ('{"a": 1}', "not written by headlab"), ('{"signature": {}, "schema": 99}', "schema 99")],
)
def test_foreign_or_newer_meta_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(DataError, match=message):
        folder.read_meta(tmp_path)


def test_a_run_is_new_then_resumed(tmp_path: Path) -> None:
    run = tmp_path / "a" / "b"
    signature = {"task": {"name": "probe", "n": 400}, "labels": ("sink", "broad"), "p": 0.1}
    assert folder.open_run(run, signature, command="headlab sweep") == "new"
    meta = folder.read_meta(run)
    assert (meta["finished"], meta["command"]) == (False, "headlab sweep")
    assert folder.open_run(run, json.loads(to_json(signature))) == "resume"


def test_another_signature_is_refused_with_what_differs(tmp_path: Path) -> None:
    folder.open_run(tmp_path, {"task": {"name": "probe", "n": 400}, "seed": 0})
    with pytest.raises(UsageError) as caught:
        folder.open_run(tmp_path, {"task": {"name": "probe", "n": 200}, "seed": 0, "model": "demo:minilm"})
    assert "task.n (200 now, 400 there)" in caught.value.cause
    assert "model (demo:minilm now, nothing there)" in caught.value.cause
    assert "seed" not in caught.value.cause
    assert "--overwrite" in caught.value.remedy


def test_overwrite_removes_the_old_run_and_nothing_else(tmp_path: Path) -> None:
    folder.save(tmp_path, heads=heads_table(), sweep=sweep_table(), meta={"n": 1})
    for name in ("rows/k.parquet", "figures/labels.svg", "maps.json", "report.html", "notes.txt", "figures/mine.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert folder.open_run(tmp_path, {"n": 2}, overwrite=True) == "new"
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["figures/mine.txt", "meta.json", "notes.txt"]
    assert folder.read_meta(tmp_path)["signature"] == {"n": 2}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_foreign_files_is_refused_and_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="no run of headlab"):
        folder.open_run(tmp_path, {"n": 1}, overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_save_writes_what_it_is_given(tmp_path: Path) -> None:
    paths = folder.save(tmp_path, heads=heads_table(), meta={"n": 1}, format="csv")
    assert [path.name for path in paths] == ["heads.csv", "meta.json"]
    folder.save(tmp_path, sweep=sweep_table())
    assert folder.read_meta(tmp_path)["signature"] == {"n": 1}  # a later table leaves the signature
    with pytest.raises(UsageError, match="nothing to save"):
        folder.save(tmp_path)


def test_a_folder_saved_without_meta_is_a_run_of_headlab_all_the_same(tmp_path: Path) -> None:
    folder.save(tmp_path, heads=heads_table())
    assert folder.read_meta(tmp_path)["signature"] == {}
    assert folder.open_run(tmp_path, {"n": 1}, overwrite=True) == "new"
