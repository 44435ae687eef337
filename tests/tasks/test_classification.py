"""Classification and probe against loops written out by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from headlab.base.errors import DataError, UsageError
from headlab.tasks import task

NAMES = ["sad", "glad", "mixed"]


@pytest.fixture
def records(words) -> list[tuple[str, str]]:
    """Texts of 3 to 11 words with a label each; the first word leans towards the label, so that it can be learnt."""
    made = []
    for place in range(60):
        label = place % 3
        made.append((f"w{label} w{label} w{label} {words(place % 8 + 1, seed=place)}", NAMES[label]))
    return made


@pytest.fixture
def file(records, tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("".join(f"{text}\t{label}\n" for text, label in records), encoding="utf-8")
    return path


def logits_by_hand(checkpoint, text: str) -> list[float]:
    ids = torch.tensor([checkpoint.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        return checkpoint.model(ids).logits[0].tolist()


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_classification_equals_one_text_at_a_time(classifier, records, file, batch_size):
    found = task("classification", classifier, data=file, batch_size=batch_size).evaluate()
    losses, right = [], []
    for text, label in records:
        logits = logits_by_hand(classifier, text)
        losses.append(math.log(sum(map(math.exp, logits))) - logits[NAMES.index(label)])
        right.append(logits.index(max(logits)) == NAMES.index(label))
    assert found.examples["loss"].tolist() == pytest.approx(losses, abs=1e-4)
    assert found.examples["correct"].tolist() == [float(r) for r in right]
    assert found.values["accuracy"] == pytest.approx(sum(right) / 60) and 0 < sum(right) < 60
    assert found.values["loss"] == pytest.approx(sum(losses) / 60, abs=1e-5)


@pytest.mark.parametrize("write", [str, lambda number: NAMES[number], lambda number: NAMES[number].upper()])
def test_labels_may_be_numbers_names_or_capitals(classifier, records, tmp_path, file, write):
    path = tmp_path / "other.jsonl"
    rows = [{"text": text, "label": write(NAMES.index(label))} for text, label in records]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    first = task("classification", classifier, data=file).evaluate()
    assert task("classification", classifier, data=path).evaluate().examples.equals(first.examples)


def test_an_unknown_label_names_its_line_and_the_known_ones(classifier, tmp_path):
    (tmp_path / "bad.tsv").write_text("w1 w2\tsad\nw3 w4\tangry\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2.*'angry'") as caught:
        task("classification", classifier, data=tmp_path / "bad.tsv")
    assert "sad, glad, mixed" in caught.value.remedy


def test_a_long_text_is_split_and_its_parts_averaged(classifier, words, tmp_path):
    text = words(25, 5)
    (tmp_path / "long.tsv").write_text(f"{text}\tglad\nw1 w2\tsad\n", encoding="utf-8")
    judged = task("classification", classifier, data=tmp_path / "long.tsv", max_length=12)
    assert judged.counts == {"n_split": 1, "n_too_short": 0, "n_rows": 4}
    parts = [text.split()[start:end] for start, end in ((0, 8), (8, 16), (16, 25))]
    mean = np.mean([logits_by_hand(classifier, " ".join(part)) for part in parts], axis=0)
    assert judged.evaluate().examples.loc[0, "loss"] == pytest.approx(np.log(np.exp(mean).sum()) - mean[1], abs=1e-5)


def test_models_that_do_not_classify_are_refused(encoder, bidirectional, causal, file):
    encoder.model.config.id2label = dict(enumerate(NAMES))
    bidirectional.model.config.id2label = dict(enumerate(NAMES))
    for checkpoint in (encoder, bidirectional):
        with pytest.raises(UsageError, match="no logits for a whole text"):
            task("classification", checkpoint, data=file)


def test_nan_logits_are_nan_and_not_wrong(classifier, file):
    judged = task("classification", classifier, data=file)
    with torch.no_grad():
        classifier.model.classifier.bias[0] = float("nan")
    found = judged.evaluate()
    assert found.examples["correct"].isna().all() and math.isnan(found.values["accuracy"])


def features_by_hand(checkpoint, text: str) -> np.ndarray:
    ids = torch.tensor([checkpoint.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        return checkpoint.model(ids).last_hidden_state[0].double().mean(dim=0).numpy()


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_probe_equals_a_regression_on_features_one_text_at_a_time(encoder, records, file, batch_size):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    judged = task("probe", encoder, data=file, batch_size=batch_size)
    features = np.stack([features_by_hand(encoder, text) for text, _ in records])
    labels = np.array([label for _, label in records])
    select, report = judged.split("select"), judged.split("report")
    assert len(select) == len(report) == 30
    other = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=5000))
    other.fit(features[select], labels[select])
    found = judged.evaluate("report")
    assert found.examples["correct"].tolist() == [float(r) for r in other.predict(features[report]) == labels[report]]
    assert found.values["accuracy"] > 0.6  # it learnt something: chance is a third
    places = [list(other.classes_).index(label) for label in labels[report]]
    chosen = other.predict_proba(features[report])[np.arange(30), places]
    assert found.examples["loss"].tolist() == pytest.approx((-np.log(chosen)).tolist(), abs=2e-3)


def test_two_labels_give_the_same_as_the_regression(encoder, records, tmp_path):
    kept = [(text, label) for text, label in records if label != "mixed"]
    path = tmp_path / "two.csv"
    path.write_text("sentence,label\n" + "".join(f"{text},{label}\n" for text, label in kept), encoding="utf-8")
    judged = task("probe", encoder, data=path)
    assert judged.labels == ["glad", "sad"] and judged.evaluate("report").values["accuracy"] > 0.7
    rows = judged.evaluate().examples
    assert (rows.loc[rows["loss"] < math.log(2) - 1e-6, "correct"] == 1).all()
    assert (rows.loc[rows["loss"] > math.log(2) + 1e-6, "correct"] == 0).all()


def test_probe_stays_as_it_was_fitted_when_the_model_changes(encoder, file):
    judged = task("probe", encoder, data=file)
    before, weight = judged.evaluate("report").values["loss"], judged.probe.weight.clone()
    with torch.no_grad():
        for layer in encoder.model.encoder.layer:
            layer.attention.output.dense.weight.zero_()
    after = judged.evaluate("report").values["loss"]
    assert torch.equal(judged.probe.weight, weight) and after != pytest.approx(before, rel=1e-3)


def test_probe_loss_is_differentiable(encoder, file):
    judged = task("probe", encoder, data=file)
    batch = next(judged.batches("report"))
    judged.losses(encoder.model, batch).sum().backward()
    weight = encoder.model.encoder.layer[0].attention.self.value.weight
    place = np.unravel_index(int(weight.grad.abs().argmax()), weight.shape)
    step, moved = 1e-2, []
    for sign in (1, -1):
        with torch.no_grad():
            weight[place] += sign * step
            moved.append(judged.losses(encoder.model, batch).double().sum().item())
            weight[place] -= sign * step
    assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(weight.grad[place].item(), rel=2e-2)


def test_probe_fitted_on_other_data(encoder, records, file, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{text}\t{label}\n" for text, label in records[:30]), encoding="utf-8")
    judged = task("probe", encoder, data=file, train_data=path, limit=9)
    assert judged.n_train == 30 and judged.n_examples == 9
    assert judged.signature()["probe"]["on"] == "train.tsv"
    (tmp_path / "strange.tsv").write_text("w1 w2\tsad\nw3 w4\tother\n" * 4, encoding="utf-8")
    with pytest.raises(DataError, match="'other'"):
        task("probe", encoder, data=tmp_path / "strange.tsv", train_data=path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("w1 w2\tsad\nw2 w3\tsad\n", "single label"),
        ("w1 w2\tsad\nw2 w3\tglad\nw1 w4\tglad\n", "fewer than 2 of the label"),
        ("sad\tw1 w2\nglad\tw3 w4\nsad\tw4 w5\nglad\tw5 w6\n", "4 labels in 4 texts"),
    ],
)
def test_probes_that_cannot_be_fitted_are_refused(encoder, tmp_path, content, match):
    (tmp_path / "few.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=match):
        task("probe", encoder, data=tmp_path / "few.tsv")


def test_limit_keeps_the_labels_in_proportion(encoder, file, records):
    judged = task("probe", encoder, data=file, limit=12)
    kept = [records[place][1] for place in judged.split("all")]
    assert [kept.count(name) for name in NAMES] == [4, 4, 4] and list(judged.split("all")) == list(range(12))


def test_another_label_column_is_another_signature(classifier, tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("text,first,second\n" + "w1 w2 w3,sad,glad\nw2 w3 w4,glad,sad\n" * 3, encoding="utf-8")
    signatures = [
        task("classification", classifier, data=path, text_column="text", label_column=column).signature()
        for column in ("first", "second")
    ]
    assert signatures[0] != signatures[1] and signatures[0]["data_sha256"] == signatures[1]["data_sha256"]


def test_a_text_without_a_label_is_no_class_of_its_own(encoder, tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("w1 w2\tsad\nw2 w3\tglad\nw3 w4\t\n" * 4, encoding="utf-8")
    with pytest.raises(DataError, match="no label"):
        task("probe", encoder, data=path)


def test_a_probe_is_not_judged_on_the_texts_it_is_fitted_on(encoder, file):
    with pytest.raises(DataError, match="judged on") as refusal:
        task("probe", encoder, data=file, train_data=file)
    assert "select half" in refusal.value.remedy


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("two.csv", "text,label,label\nw1 w2,sad,glad\nw2 w3,glad,sad\n", "two columns named 'label'"),
        ("nan.jsonl", '{"text": NaN, "label": "sad"}\n{"text": "w1 w2", "label": "glad"}\n', "line 1.*nan, not text"),
        ("five.jsonl", '{"text": "w1 w2", "label": "sad"}\n{"text": 5, "label": "glad"}\n', "line 2.*5, not text"),
        ("half.jsonl", '{"text": "w1 \\ud83d w2", "label": "sad"}\n', "line 1.*half of a character"),
        ("label.jsonl", '{"text": "w1 w2", "label": NaN}\n', "line 1.*nan, not text"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(classifier, tmp_path, name, content, cause):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=cause) as refusal:
        task("classification", classifier, data=path)
    assert refusal.value.remedy
