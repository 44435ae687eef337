"""Made-up runs, and their reports in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from headlab.report.page.page import write_report
from tests.support import browser
from tests.support.made_up_runs import BYTE_LEVEL, LABELS, SENTENCE, make_heads, make_maps, make_sweep, write


@pytest.fixture
def fake() -> SimpleNamespace:
    """The makers of this file: fake.heads(sizes), fake.sweep(n_heads, metrics), fake.maps(tokens, heads)."""
    return SimpleNamespace(
        heads=make_heads,
        sweep=make_sweep,
        maps=make_maps,
        sentence=SENTENCE,
        byte_level=BYTE_LEVEL,
        labels=list(LABELS),
    )


@pytest.fixture
def encoder_heads() -> pd.DataFrame:
    return make_heads({"encoder": (6, 12)})


@pytest.fixture
def decoder_heads() -> pd.DataFrame:
    return make_heads({"decoder": (30, 9)}, separator=False, group=3)


@pytest.fixture
def translator_heads() -> pd.DataFrame:
    return make_heads({"encoder": (6, 8), "decoder": (2, 8), "cross": (2, 8)})


@pytest.fixture
def encoder_sweep() -> pd.DataFrame:
    return make_sweep(72, {"accuracy": 0.86})


@pytest.fixture
def decoder_sweep() -> pd.DataFrame:
    return make_sweep(270, {"accuracy": 0.78, "perplexity": 24.3}, kinds="decoder")


@pytest.fixture
def small_heads(encoder_heads: pd.DataFrame) -> pd.DataFrame:
    """Few columns, so that a report of it is drawn quickly."""
    return encoder_heads[["entropy", "sink", "sink_score", "labels"]]


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """write_run("minilm", heads=..., sweep=..., maps=..., model=...) in a folder of the test's own."""
    return lambda name, **contents: write(tmp_path / name, **contents)


@pytest.fixture
def small_run(write_run: Callable[..., Path], small_heads: pd.DataFrame) -> Path:
    return write_run("small", heads=small_heads)


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run with everything in it and its report, written once; tests only read it."""
    heads, sweep = make_heads({"encoder": (6, 12)}), make_sweep(72, {"accuracy": 0.86})
    maps = make_maps(["[CLS]", "<script>alert(1)</script>", "##ed", "[SEP]"], [("encoder", 0, 2), ("encoder", 4, 2)])
    folder = write(tmp_path_factory.mktemp("runs") / "minilm", heads=heads, sweep=sweep, maps=maps)
    return SimpleNamespace(folder=folder, heads=heads, sweep=sweep, report=write_report(folder))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless browser; tests that ask for it are skipped where there is none, and fail where CI is set."""
    with browser.chromium() as running:
        yield running


@pytest.fixture(scope="session")
def open_page() -> type[browser.Opened]:
    return browser.Opened
