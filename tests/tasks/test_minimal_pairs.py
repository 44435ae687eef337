"""Minimal pairs against sums written out by hand."""

from __future__ import annotations

import json
import math

import pytest
import torch

from headlab.base.errors import DataError, UsageError
from headlab.tasks import task


@pytest.fixture
def pairs(words) -> list[dict]:
    """Pairs of unequal length, so that padding would show, in two paradigms."""
    made = []
    for place in range(14):
        good, bad = words(3 + place % 5, seed=place), words(3 + (place * 3) % 7, seed=100 + place)
        made.append({"sentence_good": good, "sentence_bad": bad, "UID": "ab"[place % 2]})
    return made


@pytest.fixture
def file(pairs, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    return path


def sum_by_hand(checkpoint, text: str) -> tuple[float, int]:
    ids = checkpoint.tokenizer(text)["input_ids"]
    if ids[-1] == checkpoint.tokenizer.eos_token_id:
        ids = ids[:-1]
    with torch.no_grad():
        logits = checkpoint.model(torch.tensor([ids])).logits[0].double()
    return sum(math.log(torch.softmax(logits[t - 1], 0)[ids[t]].item()) for t in range(1, len(ids))), len(ids) - 1


@pytest.mark.parametrize("batch_size", [1, 4, 32])
@pytest.mark.parametrize("pad_side", ["left", "right"])
def test_values_equal_sums_by_hand(causal, pairs, file, batch_size, pad_side):
    found = task("minimal-pairs", causal, data=file, batch_size=batch_size, pad_side=pad_side).evaluate()
    good = [sum_by_hand(causal, pair["sentence_good"]) for pair in pairs]
    bad = [sum_by_hand(causal, pair["sentence_bad"]) for pair in pairs]
    assert found.examples["nll"].tolist() == pytest.approx([-value for value, _ in good], abs=1e-4)
    assert found.examples["nll_bad"].tolist() == pytest.approx([-value for value, _ in bad], abs=1e-4)
    assert found.examples["loss"].tolist() == pytest.approx([b - g for (g, _), (b, _) in zip(good, bad)], abs=1e-4)
    assert found.examples["tokens"].tolist() == [n for _, n in good]
    right = [g > b for (g, _), (b, _) in zip(good, bad)]
    assert 0 < sum(right) < len(right)  # else the accuracy below would be no test
    assert found.values["accuracy"] == pytest.approx(sum(right) / len(right))
    expected = math.exp(-sum(value for value, _ in good) / sum(n for _, n in good))
    assert found.values["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_swapped_pairs_turn_accuracy_round(causal, pairs, tmp_path, file):
    swapped = [{"sentence_good": p["sentence_bad"], "sentence_bad": p["sentence_good"]} for p in pairs]
    (tmp_path / "swapped.jsonl").write_text("\n".join(map(json.dumps, swapped)), encoding="utf-8")
    first = task("minimal-pairs", causal, data=file).evaluate()
    second = task("minimal-pairs", causal, data=tmp_path / "swapped.jsonl").evaluate()
    assert first.values["accuracy"] + second.values["accuracy"] == pytest.approx(1)
    assert first.values["loss"] == pytest.approx(-second.values["loss"], abs=1e-5)


def test_equal_sentences_are_a_tie(causal, tmp_path):
    record = {"sentence_good": "w1 w2 w3", "sentence_bad": "w1 w2 w3"}
    (tmp_path / "tie.jsonl").write_text(json.dumps(record), encoding="utf-8")
    assert task("minimal-pairs", causal, data=tmp_path / "tie.jsonl").evaluate().values["accuracy"] == 0.5


def test_a_batch_keeps_both_sentences_of_a_pair_together(causal, pairs, file):
    judged = task("minimal-pairs", causal, data=file, batch_size=4)
    seen = []
    for batch in judged.batches():
        assert len(batch.examples) == len(batch)
        assert all(batch.examples.count(example) == 2 for example in batch.examples)
        seen += list(dict.fromkeys(batch.examples))
        losses = judged.losses(causal.model, batch)
        assert losses.shape == (len(batch) // 2,)
    assert sorted(seen) == list(range(len(pairs)))


def test_losses_reach_both_sentences(causal, file):
    judged = task("minimal-pairs", causal, data=file, batch_size=2)
    batch = next(judged.batches())
    gates = torch.ones(len(batch), 1, 1, requires_grad=True)
    hook = causal.model.get_input_embeddings().register_forward_hook(lambda module, args, output: output * gates)
    judged.losses(causal.model, batch).sum().backward()
    hook.remove()
    assert (gates.grad.abs() > 1e-7).all()


def test_a_long_sentence_is_split_and_counted(causal, words, tmp_path):
    record = {"sentence_good": words(40, 1), "sentence_bad": words(41, 2)}
    (tmp_path / "long.jsonl").write_text(json.dumps(record), encoding="utf-8")
    judged = task("minimal-pairs", causal, data=tmp_path / "long.jsonl", max_length=16)
    found = judged.evaluate()
    assert judged.counts["n_split"] == 1 and judged.counts["n_rows"] >= 6
    first = 0 if len(judged.frame.before) else 1
    assert found.examples["tokens"].item() == 40 - first and found.examples["tokens_bad"].item() == 41 - first


def test_splits_share_the_paradigms(causal, file):
    judged = task("minimal-pairs", causal, data=file, split="4:8")
    select, report = judged.split("select"), judged.split("report")
    assert len(select) == 4 and len(report) == 8 and not set(select) & set(report)
    assert sum(int(place) % 2 for place in select) == 2 and sum(int(place) % 2 for place in report) == 4
    assert len(judged.evaluate("report")) == 8
    assert (judged.split("select") == task("minimal-pairs", causal, data=file, split="4:8").split("select")).all()
    assert (select != task("minimal-pairs", causal, data=file, split="4:8", seed=1).split("select")).any()


def test_several_files_and_short_pairs(causal, file, tmp_path):
    short = {"sentence_good": "w1", "sentence_bad": "w1 w2", "UID": "c"}
    (tmp_path / "more.jsonl").write_text(json.dumps(short) + "\n", encoding="utf-8")
    judged = task("minimal-pairs", causal, data=[file, tmp_path / "more.jsonl"])
    assert judged.n_examples == 14 and judged.counts["n_too_short"] == 1


def test_wrong_columns_and_models_are_refused(causal, bidirectional, file, tmp_path):
    (tmp_path / "wrong.jsonl").write_text('{"good": "w1 w2", "bad": "w2 w1"}', encoding="utf-8")
    with pytest.raises(DataError, match="sentence") as caught:
        task("minimal-pairs", causal, data=tmp_path / "wrong.jsonl")
    assert "'good', 'bad'" in caught.value.remedy
    with pytest.raises(UsageError, match="look ahead"):
        task("minimal-pairs", bidirectional, data=file)
