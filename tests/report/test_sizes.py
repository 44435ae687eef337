"""A report stays small and quick, needs no torch, and opens in a browser for real runs of the demo models."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from headlab.report.page.page import write_report
from headlab.runs.maps import AttentionMap, save_maps

Write = Callable[..., Path]
WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers"}:
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Refuse())
from headlab.cli import run
sys.exit(run(sys.argv[1:]))
"""


def cpu_seconds() -> float:
    """Processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def made_up_maps(n_texts: int, n_tokens: int, heads: list[tuple[str, int, int]]) -> list[AttentionMap]:
    rng = np.random.default_rng(0)
    tokens = [f"w{i}" for i in range(n_tokens)]
    rows = rng.dirichlet(np.full(n_tokens, 0.1), size=(n_texts, n_tokens))
    return [
        AttentionMap(*head, text, np.roll(rows[text], i, axis=0), tokens, tokens)
        for text in range(n_texts)
        for i, head in enumerate(heads)
    ]


def test_twenty_maps_of_every_head_at_128_tokens_take_less_than_10_mb(
    write_run: Write, encoder_heads: pd.DataFrame
) -> None:
    folder = write_run("maps", heads=encoder_heads)
    save_maps(folder, made_up_maps(20, 128, list(encoder_heads.index)))
    path = write_report(folder)
    assert path.stat().st_size < 10_000_000
    assert "left_out" in path.read_text(encoding="utf-8")


def test_a_whole_run_of_270_heads_takes_less_than_3_mb(
    write_run: Write, decoder_heads: pd.DataFrame, decoder_sweep: pd.DataFrame
) -> None:
    maps = made_up_maps(2, 64, [("decoder", layer, head) for layer in (0, 12, 16, 18) for head in (0, 6)])
    folder = write_run("smollm2", heads=decoder_heads, sweep=decoder_sweep, maps=maps)
    assert write_report(folder).stat().st_size < 3_000_000


def test_the_command_needs_no_torch_and_less_than_10_seconds(whole_run: SimpleNamespace, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    used = cpu_seconds()  # what other processes do meanwhile does not count
    arguments = ["report", str(whole_run.folder), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert out.is_file() and done.stdout.strip() == str(out)
    assert cpu_seconds() - used < 10


def test_the_command_writes_figures_in_the_formats_asked_for(small_run: Path) -> None:
    from headlab.cli import run

    assert run(["report", str(small_run), "--figures", "svg,pdf"]) == 0
    names = {path.name for path in (small_run / "figures").iterdir()}
    assert names == {
        f"{stem}.{format}" for stem in ("labels", "heat-entropy", "entropy-by-layer") for format in ("svg", "pdf")
    }
    assert b"/FontFile2" in (small_run / "figures" / "labels.pdf").read_bytes()  # fonts are embedded
    assert run(["report", str(small_run), "--figures", "gif"]) == 2


@pytest.mark.slow
@pytest.mark.demo
@pytest.mark.parametrize("model", ["minilm", "distilbert-tagger", "smollm2"])
def test_reports_of_the_demo_models_open_cleanly(model: str, tmp_path: Path, chromium: Any, open_page: Any) -> None:
    from headlab.cli import run

    options = "--maps 2 --max-length 48 --limit 4 --heads L0H0,L3H2".split()
    assert run(["dump", f"demo:{model}", *options, "--out", str(tmp_path / "dump"), "--quiet"]) == 0
    for width in (1280, 390):
        opened = open_page(chromium, write_report(tmp_path / "dump"), width)
        assert opened.text(".detail h4").startswith("L0H0")
        opened.page.locator(".cell").nth(-1).click()
        opened.page.screenshot(path=tmp_path / f"{width}.png", full_page=True)
        assert not opened.text(".detail h4").startswith("L0H0") and opened.is_clean()
        fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert opened.page.evaluate(fits)
        opened.context.close()
