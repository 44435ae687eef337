"""Tables survive both formats, writes are whole or not at all, and a run folder is resumed only by its own run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headlab.base.errors import DataError, UsageError
from headlab.runs import tables
from headlab.runs.tables import HEAD_INDEX, SWEEP_COLUMNS


def heads_table() -> pd.DataFrame:
    index = pd.MultiIndex.from_tuples(
        [("encoder", 0, 0), ("encoder", 0, 1), ("decoder", 0, 0), ("cross", 1, 3)], names=HEAD_INDEX
    )
    return pd.DataFrame(
        {
            "kv_group": [0, 1, 0, 3],
            "entropy": [0.1, np.nan, 1 / 3, 4e-12],
            "sink": pd.array([True, None, False, True], dtype="boolean"),
            "sink_score": [0.9, np.nan, 0.2, 0.8],
            "separator": pd.array([None] * 4, dtype="boolean"),
            "separator_score": [np.nan] * 4,
            "positional_offset": pd.array([-1, None, 2, 0], dtype="Int64"),
            "broad": pd.array([False] * 4, dtype="boolean"),
            "broad_score": [0.1, 0.2, 0.3, 0.4],
            "labels": ["sink", "none", "NA", "null"],  # words that csv readers like to take for missing
        },
        index=index,
    )


def sweep_table() -> pd.DataFrame:
    rows = [
        ("gradient", "zero", None, "encoder", "0.1", 1, 4, "accuracy", 0.8, 0.9, 0.1, 0.0, 0.2, 20, "report", 0.5),
        (
            "random",
            "zero",
            7,
            "encoder",
            "0.1",
            1,
            4,
            "perplexity",
            np.inf,
            9.0,
            np.inf,
            np.nan,
            np.inf,
            20,
            "report",
            1,
        ),
    ]
    return pd.DataFrame(rows, columns=list(SWEEP_COLUMNS)).astype({"seed": "Int64"})


@pytest.mark.parametrize("format", tables.FORMATS)
def test_heads_survive_with_their_index_and_nullable_labels(tmp_path: Path, format: str) -> None:
    table = heads_table()
    path = tables.save_table(table, tmp_path, "heads", format)
    assert path == tmp_path / f"heads.{format}"
    pd.testing.assert_frame_equal(tables.load_table(tmp_path, "heads"), table, check_exact=True)


@pytest.mark.parametrize("format", tables.FORMATS)
def test_sweep_survives_with_text_budgets_missing_seeds_and_infinity(tmp_path: Path, format: str) -> None:
    table = sweep_table()
    tables.save_table(table, tmp_path, "sweep", format)
    loaded = tables.load_table(tmp_path, "sweep")
    pd.testing.assert_frame_equal(loaded, table, check_exact=True)
    assert loaded["budget"].tolist() == ["0.1", "0.1"]


@pytest.mark.parametrize("format", tables.FORMATS)
def test_examples_survive(tmp_path: Path, format: str) -> None:
    table = pd.DataFrame({"run": ["0123", "0123"], "example": [0, 5], "correct": [1.0, 0.0]})
    tables.save_table(table, tmp_path, "examples", format)
    pd.testing.assert_frame_equal(tables.load_table(tmp_path, "examples"), table)


def test_the_other_format_is_not_left_behind(tmp_path: Path) -> None:
    tables.save_table(heads_table(), tmp_path, "heads", "csv")
    tables.save_table(heads_table().iloc[:1], tmp_path, "heads", "parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["heads.parquet"]
    assert len(tables.load_table(tmp_path, "heads")) == 1


def test_saving_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    table = heads_table()
    table.attrs["notes"] = {"unwritable": object()}
    tables.save_table(table, tmp_path, "heads")
    assert set(table.attrs) == {"notes"}
    assert list(table.index.names) == list(HEAD_INDEX)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks the columns ci_low, ci_high\..*It has strategy"):
        tables.save_table(sweep_table().drop(columns=["ci_low", "ci_high"]), tmp_path, "sweep")
    pd.DataFrame({"kind": ["encoder"], "layer": [0]}).to_csv(tmp_path / "heads.csv", index=False)
    with pytest.raises(DataError, match="lacks the column head"):
        tables.load_table(tmp_path, "heads")


def test_missing_damaged_and_unknown_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no heads table.*heads\.parquet"):
        tables.load_table(tmp_path, "heads")
    (tmp_path / "heads.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read"):
        tables.load_table(tmp_path, "heads")
    (tmp_path / "sweep.csv").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be read"):
        tables.load_table(tmp_path, "sweep")
    with pytest.raises(UsageError, match="Did you mean 'heads'"):
        tables.load_table(tmp_path, "head")
    with pytest.raises(UsageError, match="Unknown format"):
        tables.save_table(heads_table(), tmp_path, "heads", "xlsx")


def test_head_names_say_the_stack_where_there_are_several() -> None:
    assert tables.head_names(heads_table().index) == ["E0H0", "E0H1", "D0H0", "X1H3"]
    assert tables.head_names([("decoder", 2, 5)]) == ["L2H5"]
    assert tables.head_names([("cross", 2, 5)], single_stack=False) == ["X2H5"]
    assert tables.head_names([("cross", 2, 5)]) == ["X2H5"], "cross-attention is never all that a model has"


def test_label_and_score_columns() -> None:
    table = heads_table().assign(score_gradient=1.0)
    assert tables.label_columns(table) == ["sink", "separator", "broad"]
    assert tables.score_columns(table) == ["score_gradient"]


def test_a_failing_writer_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tables.write_atomically(tmp_path / "deep" / "a.txt", "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        tables.write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_an_interrupt_leaves_no_litter(tmp_path: Path) -> None:
    def interrupt(temporary: Path) -> None:
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tables.write_atomically(tmp_path / "a.txt", interrupt)
    assert list(tmp_path.iterdir()) == []


def test_writers_get_a_path_with_the_same_suffix(tmp_path: Path) -> None:
    seen: list[Path] = []
    tables.write_atomically(tmp_path / "a.svg", lambda path: (seen.append(path), path.write_bytes(b"x")))
    assert seen[0].suffix == ".svg" and seen[0].parent == tmp_path


def test_unwritable_places_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        tables.write_atomically(tmp_path / "file" / "a.txt", "x")
    with pytest.raises(UsageError, match="cannot be written"):
        tables.open_run(tmp_path / "file", {"n": 1})


def test_meta_holds_signature_command_and_utc_time(tmp_path: Path) -> None:
    tables.write_meta(tmp_path, {"n": np.int64(3), "p": np.float32(0.5), "path": Path("x")}, command="headlab dump x")
    meta = tables.read_meta(tmp_path)
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
        tables.read_meta(tmp_path)


def test_a_run_is_new_then_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    signature = {"task": {"name": "probe", "n": 400}, "labels": ("sink", "broad"), "p": 0.1}
    assert tables.open_run(folder, signature, command="headlab sweep") == "new"
    meta = tables.read_meta(folder)
    assert (meta["finished"], meta["command"]) == (False, "headlab sweep")
    assert tables.open_run(folder, json.loads(tables.to_json(signature))) == "resume"


def test_another_signature_is_refused_with_what_differs(tmp_path: Path) -> None:
    tables.open_run(tmp_path, {"task": {"name": "probe", "n": 400}, "seed": 0})
    with pytest.raises(UsageError) as caught:
        tables.open_run(tmp_path, {"task": {"name": "probe", "n": 200}, "seed": 0, "model": "demo:minilm"})
    assert "task.n (200 now, 400 there)" in caught.value.cause
    assert "model (demo:minilm now, nothing there)" in caught.value.cause
    assert "seed" not in caught.value.cause
    assert "--overwrite" in caught.value.remedy


def test_overwrite_removes_the_old_run_and_nothing_else(tmp_path: Path) -> None:
    tables.save(tmp_path, heads=heads_table(), sweep=sweep_table(), meta={"n": 1})
    for name in ("rows/k.parquet", "figures/labels.svg", "maps.json", "report.html", "notes.txt", "figures/mine.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert tables.open_run(tmp_path, {"n": 2}, overwrite=True) == "new"
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["figures/mine.txt", "meta.json", "notes.txt"]
    assert tables.read_meta(tmp_path)["signature"] == {"n": 2}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_foreign_files_is_refused_and_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="no run of headlab"):
        tables.open_run(tmp_path, {"n": 1}, overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_save_writes_what_it_is_given(tmp_path: Path) -> None:
    paths = tables.save(tmp_path, heads=heads_table(), meta={"n": 1}, format="csv")
    assert [path.name for path in paths] == ["heads.csv", "meta.json"]
    tables.save(tmp_path, sweep=sweep_table())
    assert tables.read_meta(tmp_path)["signature"] == {"n": 1}  # a later table leaves the signature
    with pytest.raises(UsageError, match="nothing to save"):
        tables.save(tmp_path)


def test_a_folder_saved_without_meta_is_a_run_of_headlab_all_the_same(tmp_path: Path) -> None:
    tables.save(tmp_path, heads=heads_table())
    assert tables.read_meta(tmp_path)["signature"] == {}
    assert tables.open_run(tmp_path, {"n": 1}, overwrite=True) == "new"
