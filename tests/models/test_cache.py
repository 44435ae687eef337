"""What is in the cache is whole: builds that fail, are killed, or run at the same time leave nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headlab.base.errors import CheckpointError
from headlab.models.demo.cache import build_once, cache_folder

BUILDER = """
import os, sys, time
from pathlib import Path
from headlab.models.demo.cache import build_once

def build(folder):
    with open(os.environ["HEADLAB_LOG"], "a") as log:
        log.write("built\\n")
    (folder / "first").write_text("1")
    time.sleep(float(sys.argv[1]))
    (folder / "second").write_text("2")

print(build_once("thing", build))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADLAB_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path / "cache"


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_it_is_built_once(cache: Path) -> None:
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text("content")

    assert build_once("thing", build) == build_once("thing", build) == cache / "thing"
    assert len(calls) == 1 and (cache / "thing" / "file").read_text() == "content"
    assert visible(cache) == ["thing"]


def test_a_failed_build_leaves_nothing_and_is_tried_again(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise CheckpointError("No.", "Never mind.")

    with pytest.raises(CheckpointError, match="No"):
        build_once("thing", fail)
    assert visible(cache) == []
    build_once("thing", lambda folder: (folder / "whole").write_text("whole"))
    assert [path.name for path in (cache / "thing").iterdir()] == ["whole"]


def test_a_killed_build_is_not_taken_for_whole(cache: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", BUILDER, "60"])
    deadline = time.monotonic() + 30
    while not list(cache.glob(".thing.building-*/first")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (cache / "thing").exists() and len(visible(cache)) == 1
    build_once("thing", lambda folder: (folder / "second").write_text("2"))
    assert visible(cache) == ["thing"] and [path.name for path in (cache / "thing").iterdir()] == ["second"]


def test_processes_at_the_same_time_share_one_build(cache: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILDER, "0.3"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert outputs == [str(cache / "thing")] * 4
    assert (tmp_path / "log").read_text() == "built\n"
    assert sorted(path.name for path in (cache / "thing").iterdir()) == ["first", "second"]
    assert visible(cache) == ["thing"]


def test_a_cache_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match="cannot be used") as caught:
        build_once("thing", lambda folder: None)
    assert "HEADLAB_CACHE" in caught.value.remedy


def test_the_folder_is_the_users_cache_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADLAB_CACHE", raising=False)
    assert cache_folder().name == "headlab" and cache_folder().is_absolute()
    monkeypatch.setenv("HEADLAB_CACHE", "~/elsewhere")
    assert cache_folder() == Path.home() / "elsewhere"
