"""The texts of the package: enough of them, balanced, varied, the same every time."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from headlab.base.errors import UsageError
from headlab.models import open_model
from headlab.models.demo.minimal_pairs import PARADIGMS, minimal_pairs
from headlab.models.demo.texts import DATA, demo_minimal_pairs, demo_prose, demo_sentences


def test_sentences_are_many_balanced_and_different() -> None:
    sentences = demo_sentences()
    counts = Counter(label for _, label in sentences)
    assert len(sentences) >= 320 and set(counts) == {"nature", "society"} and len(set(counts.values())) == 1
    assert len({text.lower() for text, _ in sentences}) == len(sentences)
    assert all(text == text.strip() and len(text.split()) >= 5 and text[-1] == "." for text, _ in sentences)
    assert (DATA / "sentences.tsv").read_text(encoding="utf-8").splitlines()[0] == "text\tlabel"


def test_no_word_gives_the_label_away() -> None:
    counts: dict[str, Counter] = defaultdict(Counter)
    for text, label in demo_sentences():
        for word in set(text.lower().replace(",", "").rstrip(".").split()):
            counts[word][label] += 1
    best = max(counts.values(), key=lambda count: abs(count["nature"] - count["society"]))
    assert abs(best["nature"] - best["society"]) < 0.2 * len(demo_sentences())


def test_prose_is_a_few_pages() -> None:
    paragraphs = demo_prose()
    assert len(paragraphs) >= 20 and all("\n" not in paragraph and paragraph.strip() for paragraph in paragraphs)
    assert len(" ".join(paragraphs).split()) >= 1800
    assert len(set(paragraphs)) == len(paragraphs)


def test_minimal_pairs_differ_in_one_word() -> None:
    pairs = demo_minimal_pairs()
    counts = Counter(pair["paradigm"] for pair in pairs)
    assert len(pairs) >= 360 and len(counts) >= 6 and len(set(counts.values())) == 1
    assert set(counts) == set(PARADIGMS)
    assert len({(pair["sentence_good"], pair["sentence_bad"]) for pair in pairs}) == len(pairs)
    for pair in pairs:
        good, bad = pair["sentence_good"].split(), pair["sentence_bad"].split()
        shorter = min(len(good), len(bad))
        start = next(place for place in range(shorter) if good[place] != bad[place])
        end = next(place for place in range(shorter) if good[-1 - place] != bad[-1 - place])
        assert max(len(good), len(bad)) - start - end <= 2, pair  # "has been" against "have been" is the widest


def test_minimal_pairs_are_the_same_every_time() -> None:
    assert demo_minimal_pairs() == demo_minimal_pairs() == minimal_pairs(seed=0)
    assert minimal_pairs(seed=1) != minimal_pairs(seed=0)
    assert len(minimal_pairs(per_paradigm=3)) == 3 * len(PARADIGMS)


def test_more_pairs_than_there_are_words_for() -> None:
    with pytest.raises(UsageError, match="existential_quantifier has only about"):
        minimal_pairs(per_paradigm=200)


def test_known_pairs() -> None:
    by_paradigm = defaultdict(set)
    for pair in minimal_pairs(per_paradigm=100):
        by_paradigm[pair["paradigm"]].add((pair["sentence_good"], pair["sentence_bad"]))
    assert all(good.split()[:3] != bad.split()[:3] for good, bad in by_paradigm["subject_verb_agreement"])
    for good, bad in by_paradigm["reflexive_number"]:
        assert "themselves" in good and "themselves" not in bad
    for good, _ in by_paradigm["negative_polarity"]:
        assert good.split()[0] in ("No", "Nobody")


@pytest.mark.demo
def test_a_linear_probe_learns_the_sentences_from_minilm() -> None:
    import numpy as np
    import torch
    from sklearn.linear_model import LogisticRegression

    from headlab.models.texts.encoding import text_batches

    checkpoint = open_model("demo:minilm", purpose="features")
    texts, labels = zip(*demo_sentences(), strict=True)
    features = np.zeros((len(texts), 384))
    with torch.no_grad():
        for batch in text_batches(checkpoint, texts, batch_size=32):
            valid = batch.source.valid[..., None]
            states = checkpoint.model(**batch.inputs).last_hidden_state
            features[list(batch.examples)] = ((states * valid).sum(1) / valid.sum(1)).numpy()
    half, truth = len(texts) // 2, np.array(labels)
    probe = LogisticRegression(max_iter=1000).fit(features[:half], truth[:half])
    assert probe.score(features[half:], truth[half:]) > 0.9
