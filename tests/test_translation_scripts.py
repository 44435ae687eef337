"""The scripts about translation: training stops and goes on, and what a curve affords is counted rightly."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


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


def train(script, monkeypatch, corpus: dict[str, Path], out: Path, steps: int = 6) -> None:
    line = ["train_marian.py", "--out", out, "--steps", steps, "--every", 2]
    for name, path in corpus.items():
        first = path.with_suffix(".first")
        first.write_text("".join(text + "\n" for text in path.read_text().split("\n")[:12]))
        line += [f"--{name}", path, f"--valid-{name}", first, f"--test-{name}", first]
    monkeypatch.setattr(sys, "argv", [str(part) for part in line])
    script.main()


def test_a_stopped_training_goes_on_to_the_same_model(load, monkeypatch, corpus, tmp_path, capsys) -> None:
    from headlab.tasks import task

    script = load("train_marian")
    out = tmp_path / "model"
    train(script, monkeypatch, corpus, out)
    whole = json.loads(capsys.readouterr().out)
    assert whole["steps"] == 6 and 0 <= whole["bleu"] <= 100 and "case:lc" in whole["sacrebleu"]
    weights, translations = (out / "model.safetensors").read_bytes(), (out / "test.translations").read_text()

    class Stopped(Exception):
        pass

    other, saves = tmp_path / "other", []
    real = script.Training.save

    def stop_after_one(self) -> None:
        real(self)
        saves.append(self.step)
        raise Stopped

    # The vocabulary is made anew by another run; with the first one's, only the training itself is compared.
    monkeypatch.setattr(script, "make_tokenizer", lambda *_: script.PreTrainedTokenizerFast.from_pretrained(out))
    monkeypatch.setattr(script.Training, "save", stop_after_one)
    with pytest.raises(Stopped):
        train(script, monkeypatch, corpus, other)
    monkeypatch.setattr(script.Training, "save", real)
    train(script, monkeypatch, corpus, other)
    assert saves == [2] and "resumed after step 2" in capsys.readouterr().err
    assert (other / "model.safetensors").read_bytes() == weights
    assert (other / "test.translations").read_text() == translations

    judged = task("translation", str(out), source=corpus["source"], reference=corpus["target"], lowercase=True, limit=8)
    made = judged.translations()["translation"].tolist()
    assert made == translations.split("\n")[:8]
    assert judged.signature()["sacrebleu"]["bleu"] == whole["sacrebleu"]


def test_files_of_different_length_are_refused(load, monkeypatch, corpus, tmp_path) -> None:
    corpus["target"].write_text("one\n")
    with pytest.raises(SystemExit, match="differ in length"):
        train(load("train_marian"), monkeypatch, corpus, tmp_path / "model")


def test_what_a_curve_affords_is_counted_to_the_first_failure(load) -> None:
    shared = load("translation_experiments")
    drops = {0: (0, 0, 0), 4: (0.1, -0.3, 0.4), 8: (0.3, 0.0, 0.7), 12: (0.2, -0.1, 0.5), 16: (2.0, 1.5, 2.5)}
    rows = [
        {"strategy": "gradient", "seed": 0, "kinds": "encoder", "metric": "bleu", "n_removed": n, "n_heads": 48,
         "drop": drop, "ci_low": low, "ci_high": high}
        for n, (drop, low, high) in drops.items()
    ]  # fmt: skip
    table = pd.DataFrame(rows + [row | {"metric": "nll", "drop": 9.0} for row in rows])
    found = shared.affordable(table).set_index("drop")
    assert found.loc[0.25, ["removed", "at_least", "at_most"]].tolist() == [4, 0, 12]
    assert found.loc[1.0, ["removed", "at_least", "at_most"]].tolist() == [12, 12, 12]


def test_an_order_whose_first_cut_is_too_dear_affords_nothing(load) -> None:
    shared = load("translation_experiments")
    row = {"strategy": "hard_concrete", "seed": 0, "kinds": "encoder", "metric": "bleu", "n_removed": 20, "n_heads": 48,
           "drop": 3.0, "ci_low": 2.0, "ci_high": 4.0}  # fmt: skip
    found = shared.affordable(pd.DataFrame([row]))
    assert found[["removed", "at_least", "at_most"]].to_numpy().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_survival_of_labels_by_hand(load) -> None:
    tables = load("translation_tables")
    index = pd.MultiIndex.from_product([["encoder"], [0, 1], range(4)], names=["kind", "layer", "head"])
    local = pd.Series([1, 1, 1, 0, 0, 0, 0, 0], index=index, dtype=bool)
    labels = pd.DataFrame({"local": local, "rare": [True] + [False] * 7}, index=index)
    stays = pd.Series([1, 1, 1, 1, 0, 0, 0, 0], index=index, dtype=bool)
    found = tables.survival(labels, stays).set_index("label")
    assert list(found.index) == ["local"]  # one head alone is not tested
    assert found.loc["local", ["n", "stay", "others", "others_stay"]].tolist() == [3, 3, 5, 1]
    assert found.loc["local", "p"] == pytest.approx(2 * 4 / 56)  # C(4,3) of C(8,3) draws, and as many on the other side
    scores = pd.DataFrame({"mass": [8.0, 7, 6, 5, 4, 3, 2, 1]}, index=index)
    apart = tables.separation(scores, stays).iloc[0]
    assert apart["effect"] == 1 and apart["p"] == pytest.approx(2 / 70)  # one of C(8,4) orders, and its mirror image


def test_fragility_is_the_difference_of_two_values(load, tmp_path) -> None:
    from headlab.pruning.evaluations import MaskedRun, write_run
    from headlab.tasks.metrics import metric

    tables = load("translation_tables")
    bleu = metric("bleu")
    rng = np.random.default_rng(0)
    runs = {}
    for kind, share in (("encoder", 0.8), ("cross", 0.3)):
        totals = np.array([10.0, 9, 8, 7])
        hits = rng.binomial(totals.astype(int), share, size=(50, 4))
        # In sacrebleu's order: length, length of the reference, four counts of matches, four totals.
        values = [np.full(50, 10.0), np.full(50, 10.0), *hits.T, *np.repeat(totals[:, None], 50, axis=1)]
        runs[kind] = pd.DataFrame(dict(zip(bleu.columns, values, strict=True))).astype(float)
        write_run(tmp_path, MaskedRun(f"run-{kind}", runs[kind], 0.0))
    rows = [{"strategy": "gradient", "seed": 0, "kinds": kind, "budget": "20%", "n_removed": 5, "metric": "bleu",
             "run": f"run-{kind}"} for kind in runs]  # fmt: skip
    found = tables.fragility(pd.DataFrame(rows), tmp_path).iloc[0]
    values = {kind: bleu.of({name: part[name].to_numpy() for name in part}) for kind, part in runs.items()}
    assert found["other"] == "encoder" and found["drop"] == pytest.approx(values["encoder"] - values["cross"])
    assert 0 < found["ci_low"] < found["drop"] < found["ci_high"]


@pytest.mark.slow
def test_the_marian_experiment_reports_all_its_parts(load, monkeypatch, corpus, tmp_path) -> None:
    import sacrebleu

    model, out, runs = tmp_path / "model", tmp_path / "out", tmp_path / "runs"
    train(load("train_marian"), monkeypatch, corpus, model)
    script = load("reproduce_michel_mt")
    line = ["x", "--model", model, "--source", corpus["source"], "--reference", corpus["target"], "--lowercase",
            "--limit", 4, "--choose", 10, "--seeds", 1, "--parts", "kinds,report"]  # fmt: skip
    line += ["--runs", runs, "--out", out]
    monkeypatch.setattr(script, "BUDGETS", ("0", "100%"))
    monkeypatch.setattr(sys, "argv", [str(part) for part in line])
    script.main()
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
