"""The scripts about translation: training stops and goes on, and what a curve affords is counted rightly."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headlab.runs.tables import save_table
from scripts.experiments.reproduce_michel_mt import run as michel
from scripts.experiments.reproduce_michel_mt import train as train_marian
from scripts.experiments.reproduce_voita import report as voita_report
from scripts.experiments.shared import translation_tables


@pytest.fixture
def corpus(tmp_path: Path) -> dict[str, Path]:
    """Two hundred lines of invented words, and their translation word by word."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), 4)) for _ in range(40)]
    lines = [" ".join(rng.choice(words, rng.integers(2, 7))) for _ in range(200)]
    paths = {"source": tmp_path / "a.txt", "target": tmp_path / "b.txt"}
    paths["source"].write_text("\n".join(lines) + "\n")
    paths["target"].write_text("\n".join(line.upper().replace("A", "k") for line in lines) + "\n")
    return paths


def train(monkeypatch, corpus: dict[str, Path], out: Path, steps: int = 6) -> None:
    line = ["train_marian.py", "--out", out, "--steps", steps, "--every", 2]
    for name, path in corpus.items():
        first = path.with_suffix(".first")
        first.write_text("".join(text + "\n" for text in path.read_text().split("\n")[:12]))
        line += [f"--{name}", path, f"--valid-{name}", first, f"--test-{name}", first]
    monkeypatch.setattr(sys, "argv", [str(part) for part in line])
    train_marian.main()


def test_a_stopped_training_goes_on_to_the_same_model(monkeypatch, corpus, tmp_path, capsys) -> None:
    from headlab.tasks import task

    out = tmp_path / "model"
    train(monkeypatch, corpus, out)
    whole = json.loads(capsys.readouterr().out)
    assert whole["steps"] == 6 and 0 <= whole["bleu"] <= 100 and "case:lc" in whole["sacrebleu"]
    weights, translations = (out / "model.safetensors").read_bytes(), (out / "test.translations").read_text()

    class Stopped(Exception):
        pass

    other, saves = tmp_path / "other", []
    real = train_marian.Training.save

    def stop_after_one(self) -> None:
        real(self)
        saves.append(self.step)
        raise Stopped

    # The vocabulary is made anew by another run; with the first one's, only the training itself is compared.
    monkeypatch.setattr(
        train_marian, "make_tokenizer", lambda *_: train_marian.PreTrainedTokenizerFast.from_pretrained(out)
    )
    monkeypatch.setattr(train_marian.Training, "save", stop_after_one)
    with pytest.raises(Stopped):
        train(monkeypatch, corpus, other)
    monkeypatch.setattr(train_marian.Training, "save", real)
    train(monkeypatch, corpus, other)
    assert saves == [2] and "resumed after step 2" in capsys.readouterr().err
    assert (other / "model.safetensors").read_bytes() == weights
    assert (other / "test.translations").read_text() == translations

    judged = task("translation", str(out), source=corpus["source"], reference=corpus["target"], lowercase=True, limit=8)
    made = judged.translations()["translation"].tolist()
    assert made == translations.split("\n")[:8]
    assert judged.signature()["sacrebleu"]["bleu"] == whole["sacrebleu"]


def test_files_of_different_length_are_refused(monkeypatch, corpus, tmp_path) -> None:
    corpus["target"].write_text("one\n")
    with pytest.raises(SystemExit, match="differ in length"):
        train(monkeypatch, corpus, tmp_path / "model")


def test_what_a_curve_affords_is_counted_to_the_first_failure() -> None:
    drops = {0: (0, 0, 0), 4: (0.1, -0.3, 0.4), 8: (0.3, 0.0, 0.7), 12: (0.2, -0.1, 0.5), 16: (2.0, 1.5, 2.5)}
    rows = [
        {
            "strategy": "gradient",
            "seed": 0,
            "kinds": "encoder",
            "metric": "bleu",
            "n_removed": n,
            "n_heads": 48,
            "drop": drop,
            "ci_low": low,
            "ci_high": high,
        }
        for n, (drop, low, high) in drops.items()
    ]
    table = pd.DataFrame(rows + [row | {"metric": "nll", "drop": 9.0} for row in rows])
    found = translation_tables.affordable(table).set_index("drop")
    assert found.loc[0.25, ["removed", "at_least", "at_most"]].tolist() == [4, 0, 12]
    assert found.loc[1.0, ["removed", "at_least", "at_most"]].tolist() == [12, 12, 12]


def test_an_order_whose_first_cut_is_too_dear_affords_nothing() -> None:
    row = {
        "strategy": "hard_concrete",
        "seed": 0,
        "kinds": "encoder",
        "metric": "bleu",
        "n_removed": 20,
        "n_heads": 48,
        "drop": 3.0,
        "ci_low": 2.0,
        "ci_high": 4.0,
    }
    found = translation_tables.affordable(pd.DataFrame([row]))
    assert found[["removed", "at_least", "at_most"]].to_numpy().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_survival_of_labels_by_hand() -> None:
    index = pd.MultiIndex.from_product([["encoder"], [0, 1], range(4)], names=["kind", "layer", "head"])
    local = pd.Series([1, 1, 1, 0, 0, 0, 0, 0], index=index, dtype=bool)
    labels = pd.DataFrame({"local": local, "rare": [True] + [False] * 7}, index=index)
    stays = pd.Series([1, 1, 1, 1, 0, 0, 0, 0], index=index, dtype=bool)
    found = translation_tables.survival(labels, stays).set_index("label")
    assert list(found.index) == ["local"]  # one head alone is not tested
    assert found.loc["local", ["n", "stay", "others", "others_stay"]].tolist() == [3, 3, 5, 1]
    assert found.loc["local", "p"] == pytest.approx(2 * 4 / 56)  # C(4,3) of C(8,3) draws, and as many on the other side
    scores = pd.DataFrame({"mass": [8.0, 7, 6, 5, 4, 3, 2, 1]}, index=index)
    apart = translation_tables.separation(scores, stays).iloc[0]
    assert apart["effect"] == 1 and apart["p"] == pytest.approx(2 / 70)  # one of C(8,4) orders, and its mirror image


def test_fragility_is_the_difference_of_two_values(tmp_path) -> None:
    from headlab.metrics import metric
    from headlab.runs.evaluations import MaskedEvaluation, write_evaluation

    bleu = metric("bleu")
    rng = np.random.default_rng(0)
    runs = {}
    for kind, share in (("encoder", 0.8), ("cross", 0.3)):
        totals = np.array([10.0, 9, 8, 7])
        hits = rng.binomial(totals.astype(int), share, size=(50, 4))
        # In sacrebleu's order: length, length of the reference, four counts of matches, four totals.
        values = [np.full(50, 10.0), np.full(50, 10.0), *hits.T, *np.repeat(totals[:, None], 50, axis=1)]
        runs[kind] = pd.DataFrame(dict(zip(bleu.columns, values, strict=True))).astype(float)
        write_evaluation(tmp_path, MaskedEvaluation(f"run-{kind}", runs[kind], 0.0))
    rows = [
        {
            "strategy": "gradient",
            "seed": 0,
            "kinds": kind,
            "budget": "20%",
            "n_removed": 5,
            "metric": "bleu",
            "run": f"run-{kind}",
        }
        for kind in runs
    ]
    found = translation_tables.fragility(pd.DataFrame(rows), tmp_path).iloc[0]
    values = {kind: bleu.of({name: part[name].to_numpy() for name in part}) for kind, part in runs.items()}
    assert found["other"] == "encoder" and found["drop"] == pytest.approx(values["encoder"] - values["cross"])
    assert 0 < found["ci_low"] < found["drop"] < found["ci_high"]


@pytest.mark.slow
def test_the_marian_experiment_reports_all_its_parts(monkeypatch, corpus, tmp_path) -> None:
    import sacrebleu

    model, out, runs = tmp_path / "model", tmp_path / "out", tmp_path / "runs"
    train(monkeypatch, corpus, model)
    line = [
        "x",
        "--model",
        model,
        "--source",
        corpus["source"],
        "--reference",
        corpus["target"],
        "--lowercase",
        "--limit",
        4,
        "--choose",
        10,
        "--seeds",
        1,
        "--parts",
        "kinds,report",
    ]
    line += ["--runs", runs, "--out", out]
    monkeypatch.setattr(michel, "BUDGETS", ("0", "100%"))
    monkeypatch.setattr(sys, "argv", [str(part) for part in line])
    michel.main()
    kinds = pd.read_csv(out / "kinds.csv")
    assert list(dict.fromkeys(kinds["kinds"])) == ["encoder", "decoder", "cross", "encoder+decoder+cross"]
    whole = kinds[(kinds["metric"] == "bleu") & (kinds["n_removed"] == 0)]["value"]
    lines = (model / "test.translations").read_text().split("\n")[:4]
    references = [corpus["target"].read_text().split("\n")[:4]]
    expected = sacrebleu.corpus_bleu(lines, references, lowercase=True).score
    assert np.allclose(whole, expected, rtol=1e-5)
    fragility = pd.read_csv(out / "fragility.csv")
    assert set(fragility["other"]) == {"encoder", "decoder"}
    assert "Is cross-attention the most fragile?" in (out / "README.md").read_text()
    assert (out / "kinds-bleu.png").stat().st_size > 1000
    assert json.loads((out / "meta.json").read_text())["signature"]["chosen_on"]["n_examples"] == 10


def student_tables(folder: Path) -> pd.MultiIndex:
    """Tables of a student whose only needed cross-attention head is X1H6; returns the index of its heads."""
    places = [("encoder", layer, head) for layer in range(6) for head in range(8)]
    places += [("cross", layer, head) for layer in range(2) for head in range(8)]
    index = pd.MultiIndex.from_tuples(places, names=["kind", "layer", "head"])
    save_table(pd.DataFrame({"score_gradient": np.arange(64.0)}, index=index), folder, "heads")
    drops = {("gradient", 0): (0, 0.2, 2.0), ("random", 0): (0, 2.0, 9.0), ("random", 1): (0, 0.5, 8.0)}
    rows = [
        {
            "strategy": name,
            "ablation": "zero",
            "seed": seed,
            "kinds": "encoder",
            "budget": str(n),
            "n_removed": n,
            "n_heads": 48,
            "metric": "bleu",
            "value": 30 - drop,
            "baseline": 30.0,
            "drop": drop,
            "ci_low": drop - 0.1,
            "ci_high": drop + 0.1,
            "n_examples": 500,
            "split": "all",
            "seconds": 1.0,
            "run": "x",
        }
        for (name, seed), several in drops.items()
        for n, drop in zip((0, 8, 16), several, strict=True)
    ]
    pd.DataFrame(rows).to_parquet(folder / "curve.parquet")
    gate = {**rows[2], "strategy": "hard_concrete", "budget": "penalty=0.1", "penalty": 0.1, "n_removed": 40}
    pd.DataFrame([gate]).to_parquet(folder / "hard_concrete-curve.parquet")
    free = index.get_level_values("kind") == "encoder"
    kept = ~free | (np.arange(64) >= 40)
    weight = np.where(free, np.where(kept, 4.0, -4.0), np.nan)
    gates = pd.DataFrame(
        {"method": "hard_concrete", "level": 0.1, "seed": 0, "weight": weight, "kept": kept}, index=index
    )
    gates = gates.assign(p_open=np.where(kept, 0.99, 0.01), p_one=np.where(kept, 0.9, 0.0))
    gates.reset_index().to_parquet(folder / "hard_concrete.parquet")
    for name, metric in (("single-nll", "nll"), ("single", "bleu")):
        alone = index.to_frame(index=False).assign(metric=metric, drop=0.0, run="x")
        alone.loc[62, "drop"] = 2.5
        alone = alone if metric == "nll" else alone[alone["kind"] == "cross"]
        alone.assign(ci_low=alone["drop"] - 0.1, ci_high=alone["drop"] + 0.1).to_parquet(folder / f"{name}.parquet")
    return index


def test_the_student_report_from_tables_by_hand(monkeypatch, tmp_path) -> None:
    from types import SimpleNamespace

    index = student_tables(tmp_path)
    labels = pd.DataFrame({"local": np.arange(64) >= 36, "local_score": 0.5, "entropy": 1.0}, index=index)
    labels["alignment_score"] = [float(place == ("cross", 1, 6)) for place in index]
    labels.reset_index().to_csv(tmp_path / "labels.csv")
    monkeypatch.setattr(voita_report, "LABELS", tmp_path / "labels.csv")
    monkeypatch.setattr(voita_report, "whole_key", lambda *_: "x")
    judge = SimpleNamespace(n_examples=500)
    bench = SimpleNamespace(judge=judge, cheap=judge, choose=SimpleNamespace(split=lambda _: range(9)), masks=tmp_path)
    tables = voita_report.report(bench, tmp_path, tmp_path / "out")
    found = tables["survival"].set_index(["order", "test", "label"])
    # Local are the heads 36 to 47 of 48; gates keep 40 to 47, the order by gradient the last 16.
    gates = found.loc[("hard_concrete 0.1 seed 0, 8 left", "Fisher", "local")]
    assert gates[["n", "stay", "others", "others_stay"]].tolist() == [12, 8, 36, 0] and gates["p"] < 1e-5
    assert found.loc[("gradient, 16 left", "Fisher", "local"), "stay"] == 12
    text = (tmp_path / "out" / "README.md").read_text()
    assert "Baseline: 30.00 BLEU" in text and "X1H6 aligns best (1.00" in text and "number 1 of 16" in text
    assert "| gradient | 0.25 | 8 | 0 | 8 |" in text and "| random | 1 | 0 to 8 | 0 to 8 | 0 to 8 |" in text
    assert {"curve-bleu.png", "hard_concrete.png", "cross.png"} <= {path.name for path in (tmp_path / "out").iterdir()}
