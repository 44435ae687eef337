"""Heads over training: a table with a `step` column becomes a slider, a figure for each label and a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from headlab.report.page.page import write_report
from headlab.report.pictures import write_figures
from headlab.runs.meta import write_meta
from tests.support.browser import Opened

HEADS = [("decoder", layer, head) for layer in range(2) for head in range(2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models at three steps; in the first, L1H0 becomes an induction head at step 20."""
    rows = []
    for model, top in (("2-layer", 0.9), ("1-layer", 0.1)):
        for step in (0, 10, 20):
            for kind, layer, head in HEADS:
                score = top if (step, layer, head) == (20, 1, 0) else 0.01 * layer + 0.001 * step
                rows.append(
                    {
                        "model": model,
                        "seed": 0,
                        "step": step,
                        "kind": kind,
                        "layer": layer,
                        "head": head,
                        "induction": score > 0.5,
                        "induction_score": score,
                    }
                )
    place = tmp_path / "training"
    write_meta(place, {"model": "tiny"})
    pd.DataFrame(rows).to_csv(place / "heads_over_training.csv", index=False)
    return place


def test_the_page_holds_every_step_and_says_when_a_label_appears(folder: Path) -> None:
    page = write_report(folder).read_text(encoding="utf-8")
    data = json.loads(page.split('id="run-1-data">', 1)[1].split("</script>", 1)[0])
    first, second = data["training"]
    assert (first["name"], first["steps"], first["names"]) == (
        "2-layer, seed 0",
        [0, 10, 20],
        ["L0H0", "L0H1", "L1H0", "L1H1"],
    )
    assert first["values"]["induction_score"][2] == [0.02, 0.02, 0.9, 0.03]
    assert second["values"]["induction_score"][2][2] == 0.1
    assert "2-layer, seed 0: heads at 3 steps of training, 0 to 20; labels: induction from step 20." in page
    assert "1-layer, seed 0: heads at 3 steps of training, 0 to 20; labels: induction never." in page
    assert "no table of heads" not in page


def test_each_training_gets_a_figure(folder: Path) -> None:
    names = {path.name for path in write_figures(folder, ["png"])}
    assert names == {"training-2-layer_seed_0-induction_score.png", "training-1-layer_seed_0-induction_score.png"}


def test_the_slider_walks_through_the_steps(folder: Path, chromium: Any) -> None:
    opened = Opened(chromium, write_report(folder))
    part = opened.page.locator('[data-part="training"]')
    slider, said = part.locator("input[type=range]"), part.locator("[role=status]")
    assert said.inner_text() == "step 0; greatest: L1H0 0.010"
    slider.fill("2")
    assert said.inner_text() == "step 20; greatest: L1H0 0.900"
    part.locator("select").first.select_option("1")
    assert said.inner_text() == "step 20; greatest: L1H0 0.100"
    part.locator("button", has_text="Play").click()
    part.locator("[role=status]", has_text="step 0").wait_for()
    assert opened.is_clean()
    opened.context.close()
