"""Files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from headlab.base.errors import UsageError
from headlab.runs import files, folder


def test_a_failing_writer_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = files.write_atomically(tmp_path / "deep" / "a.txt", "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        files.write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_an_interrupt_leaves_no_litter(tmp_path: Path) -> None:
    def interrupt(temporary: Path) -> None:
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(tmp_path / "a.txt", interrupt)
    assert list(tmp_path.iterdir()) == []


def test_writers_get_a_path_with_the_same_suffix(tmp_path: Path) -> None:
    seen: list[Path] = []
    files.write_atomically(tmp_path / "a.svg", lambda path: (seen.append(path), path.write_bytes(b"x")))
    assert seen[0].suffix == ".svg" and seen[0].parent == tmp_path


def test_unwritable_places_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        files.write_atomically(tmp_path / "file" / "a.txt", "x")
    with pytest.raises(UsageError, match="cannot be written"):
        folder.open_run(tmp_path / "file", {"n": 1})
