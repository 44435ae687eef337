"""Scripts that train or look at models run at a tiny size and leave the files that they promise."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scripts.experiments.induction import run as script


def test_half_of_the_rows_repeat_a_chunk() -> None:
    rows = script.sequences(np.random.default_rng(0), 8, repeated=0.5).numpy()
    periods = [next((p for p in range(1, 33) if (row[p:] == row[:-p]).all()), None) for row in rows]
    assert all(6 <= period <= 30 for period in periods[:4]) and periods[4:] == [None] * 4
    (row,) = script.sequences(np.random.default_rng(0), 1, repeated=1, period=32).numpy()
    assert len(set(row[:32])) == 32 and (row[:32] == row[32:]).all()


def test_kept_patterns_change_nothing_and_stay_when_an_earlier_head_is_removed() -> None:
    from headlab import HeadMask, Heads

    model = script.new_model(2, 0).eval()
    for layer in model.model.layers:  # large weights, so that patterns do depend on the layer below
        layer.self_attn.q_proj.weight.data *= 30
        layer.self_attn.o_proj.weight.data *= 30
    ids = script.sequences(np.random.default_rng(1), 4, repeated=1, period=32)
    heads, before = Heads(model), script.losses(model, ids)
    mask = HeadMask.removing([("decoder", 0, 1)], like=heads)
    last = HeadMask.removing([("decoder", 1, 2)], like=heads)
    with heads.masked(mask):
        zeroed = script.losses(model, ids)
    with heads.masked(last):
        zeroed_last = script.losses(model, ids)
    patterns = script.Patterns()
    with patterns.of(model, ids):
        for one, other in zip(script.losses(model, ids), before, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)
        with heads.masked(last):  # nothing attends after the last layer: both ablations are one
            np.testing.assert_allclose(script.losses(model, ids)[1], zeroed_last[1], atol=1e-4)
        with heads.masked(mask):
            assert np.abs(script.losses(model, ids)[1] - zeroed[1]).max() > 1e-3
    np.testing.assert_allclose(script.losses(model, ids)[1], before[1], atol=1e-6)


def test_a_killed_or_failed_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["train_induction.py", "--steps", "1", "--seeds", "1", "--out", str(tmp_path / "o")]
    )
    monkeypatch.setattr(script, "ablate", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        script.main()
    assert not (tmp_path / "o").exists() and not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_train_induction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--steps", "4", "--every", "2", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "o")]
    monkeypatch.setattr(sys, "argv", ["train_induction.py", *given])
    script.main()
    out = tmp_path / "o"
    heads = pd.read_csv(out / "heads_over_training.csv")
    assert sorted(set(heads["step"])) == [0, 2, 4]
    assert heads.groupby(["model", "step"]).size().tolist() == [4, 4, 4, 8, 8, 8]
    assert {"induction_score", "previous_token_score", "duplicate_token_score"} <= set(heads.columns)
    ablation = pd.read_csv(out / "ablation.csv")
    assert ablation.groupby(["ablation", "n_removed"]).size().tolist() == [8, 28, 8, 28]
    assert (ablation["of_circuit"] == 2).sum() == 2
    assert json.loads((out / "meta.json").read_text())["signature"]["steps"] == 4
    assert {path.name for path in out.glob("*.png")} == {"training.png", "ablation.png"}
    # What was trained is not trained again, and gives the same tables.
    before = {path.name: path.read_text() for path in out.glob("*.csv")}
    monkeypatch.setattr(script, "train", None)
    script.main()
    assert before == {path.name: path.read_text() for path in out.glob("*.csv")}
