"""What the label scripts decide: silver alignments, tables of several models, the losses of the gradients."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from scripts.experiments.labels import run, tables


def test_silver_links_join_names_and_numbers_that_stand_once_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`a` is lower case, `Ana` stands twice, the last pair has nothing in common and is left out."""
    pairs = [
        ("In 2019 a man met Obama .", "Obama encontrou a homem em 2019 ."),
        ("Ana saw Ana and Rui .", "Ana viu Rui ."),
        ("nothing here", "nada aqui"),
    ]
    folder = tmp_path / "ntrex"
    folder.mkdir()
    for language, side in (("en", 0), ("pt-BR", 1)):
        text = "\n".join(pair[side] for pair in pairs)
        (folder / f"newstest2019.first1000.{language}").write_text(text, encoding="utf-8")
    monkeypatch.setenv("HEADLAB_DATA", str(tmp_path))
    paths = run.silver_alignments(tmp_path)
    assert paths[2].read_text().split("\n") == ["1-5 5-0", "4-2"]
    assert paths[0].read_text().split("\n") == [pair[0] for pair in pairs[:2]]


def test_the_rows_of_a_model_take_the_place_of_its_older_ones(tmp_path: Path) -> None:
    update, path = tables.update, tmp_path / "all.csv"
    update(path, pd.DataFrame({"x": [1, 2]}), "first")
    update(path, pd.DataFrame({"x": [3]}), "second")
    update(path, pd.DataFrame({"x": [0.123456]}), "first")
    found = pd.read_csv(path)
    assert found["model"].tolist() == ["second", "first"] and found["x"].tolist() == [3, 0.1235]


def test_the_losses_of_the_gradients_are_those_that_they_say() -> None:
    """With two classes -ln p is ln(1 + exp(-difference of logits))."""
    logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [5.0, 5.0]]])
    tokens = SimpleNamespace(
        ids=torch.tensor([[0, 1, 0]]),
        valid=torch.tensor([[True, True, True]]),
        special=torch.tensor([[False, False, True]]),
    )
    batch = SimpleNamespace(inputs={}, source=tokens)

    def model(**_):
        return SimpleNamespace(logits=logits)

    def surprise(x: float) -> float:
        return float(torch.log1p(torch.exp(torch.tensor(-x))))

    assert tables.own_tags(model, batch).item() == pytest.approx((surprise(2) + surprise(1)) / 2)
    assert tables.next_token(model, batch).item() == pytest.approx((surprise(-2) + surprise(-1)) / 2)
