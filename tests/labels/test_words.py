"""From word pieces to words against plain loops, treebanks and what is wrong with them, coreference, alignment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from headlab.attention.heads import Heads
from headlab.base.errors import DataError, UsageError
from headlab.labels import Label, load_labels
from headlab.labels.alignment import _instances as alignment_instances
from headlab.labels.inputs.word_pairs import Instance, as_extra, with_offsets
from headlab.labels.syntactic import labels as syntactic
from headlab.models.texts.alignments import alignment_error_rate, read_alignments
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.mentions import read_mentions
from headlab.models.texts.treebanks import read_conllu
from tests.support.planted_maps import at_offset, everywhere, planted, texts_of

# Two sentences' worth of trouble: a comment, a multiword token, an empty node, a missing head, a lone surface.
TROUBLE = """# text = I don't know.
1\tI\tI\tPRON\t_\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\t_\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\t_\t_\t4\tadvmod\t_\t_
3.1\tghost\tghost\tVERB\t_\t_\t_\t_\t_\t_
4\tknow\tknow\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
5\t.\t.\tPUNCT\t_\t_\t_\t_\t_\t_

1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_
2\tle\tle\tDET\t_\t_\t3\tdet\t_\t_
3\tjour\tjour\tNOUN\t_\t_\t0\troot\t_\t_

"""


def test_conllu_with_multiword_tokens_empty_nodes_comments_and_missing_heads(tmp_path: Path) -> None:
    path = tmp_path / "trouble.conllu"
    path.write_text(TROUBLE, encoding="utf-8")
    first, second = read_conllu(path)
    assert first.words == ("I", "do", "n't", "know", ".")
    assert first.text == "I don't know."
    assert [first.text[a:b] for a, b in first.spans] == ["I", "do", "n't", "know", "."]
    assert first.heads == (3, 3, 3, -1, None)
    assert second.text == "du jour"
    assert [second.text[a:b] for a, b in second.spans] == ["du", "du", "jour"]  # two words in one surface


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "no sentence"), (b"# comment only\n\n", "no sentence"), (b"1\ta\n\n", "columns"), (b"\xff\xfe", "UTF-8")],
)
def test_conllu_that_is_none(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bad.conllu"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_conllu(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_conllu(tmp_path / "missing.conllu")


def test_the_best_offset_is_learned_on_even_texts() -> None:
    made = [Instance("det", text, 4, (5 if text % 2 == 0 else 6,)) for text in range(8)]
    judged, best = with_offsets(made)
    assert best == {"det": 1}
    assert [one.baseline for one in judged] == [True, False] * 4


# ---- words from pieces


@dataclass(frozen=True)
class Given:
    """Batches as they are."""

    made: tuple[Batch, ...] = field(compare=False)

    def batches(self, subject: object) -> list[Batch]:
        return list(self.made)


def label_for(batches: list[Batch], pair: str = "rel") -> Label:
    return Label("rel", "word_pairs", 0.1, None, "d", "s", input=Given(tuple(batches)), pair=pair, margin=0.1)


def word_pieces(length: int, seed: int) -> torch.Tensor:
    """Words of one to four pieces, the first and last token being none."""
    draw = np.random.default_rng(seed)
    words = np.repeat(np.arange(length), draw.integers(1, 5, length))[: length - 2]
    return torch.tensor([-1, *words, -1])


def sentence_batch(words: list[torch.Tensor], instances: list[Instance], **extra: object) -> Batch:
    length = max(len(row) for row in words)
    places = torch.stack([torch.nn.functional.pad(row, (0, length - len(row)), value=-1) for row in words])
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(10, 40, places.shape, generator=generator)
    valid = torch.stack([torch.arange(length) < len(row) for row in words])
    special = valid & (places < 0)
    tokens = Tokens(ids, valid, special, torch.zeros_like(valid))
    texts = list(range(len(words)))
    more = {"query_words": places, "key_words": places, "word_kinds": ("encoder", "decoder")}
    more |= as_extra(instances, texts, ["rel"]) | extra
    return Batch({"input_ids": ids, "attention_mask": valid.long()}, tokens, examples=tuple(texts), extra=more)


def noisy(seed: int):
    def scores(ids: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed + int(ids.sum()))
        return 2 * torch.randn(len(ids), len(ids), generator=generator)

    return scores


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("first_piece", [False, True])
def test_sum_to_a_word_and_mean_from_its_pieces(
    monkeypatch: pytest.MonkeyPatch, causal: bool, first_piece: bool
) -> None:
    """Clark et al. 2019: to a word the sum over its pieces, from it the mean (the shipped code: its first piece)."""
    monkeypatch.setattr(
        "headlab.attention.reach.blocks.BLOCK_BYTES", 1
    )  # blocks of 16 rows: words across their borders
    words = [word_pieces(70, 0), word_pieces(41, 1)]
    instances = []
    for text, places in enumerate(words):
        for word in range(int(places.max()) + 1):
            instances += [Instance("rel", text, word, (to,)) for to in {max(0, word - 1), word // 2} - {word}]
    batch = sentence_batch(words, instances, first_piece=first_piece)
    heads = Heads(planted([noisy(0), noisy(1)], causal=causal))
    row = heads.observe([batch], labels=[label_for([batch])])
    maps = next(iter(heads.capture(batch).values()))
    expected = np.zeros((2, 2))
    for one in instances:
        places = batch.extra["query_words"][one.text]
        mine = (places == one.word).nonzero().flatten()
        mine = mine[:1] if first_piece else mine
        for head in range(2):
            rows = maps[one.text, head, mine].mean(0)
            to = [float(rows[places == w].sum()) if w != one.word else -1 for w in range(int(places.max()) + 1)]
            expected[one.text % 2, head] += int(np.argmax(to) in one.targets and max(to) > 0)
    counts = [sum(one.text % 2 == half for one in instances) for half in (0, 1)]
    np.testing.assert_allclose(row["rel_select"], expected[0] / counts[0], atol=1e-9)
    np.testing.assert_allclose(row["rel_score"], expected[1] / counts[1], atol=1e-9)
    assert row["rel_n"].tolist() == [counts[1]] * 2


def test_a_planted_head_joins_all_pairs_and_a_uniform_one_none() -> None:
    words = [torch.tensor([-1, *range(12), -1])] * 8
    instances = [
        Instance("rel", text, word, (word + 3,), baseline=False) for text in range(8) for word in range(0, 8, 2)
    ]
    batch = sentence_batch(words, instances)
    heads = Heads(planted([at_offset(3), everywhere, at_offset(-1)], causal=False))
    table = heads.observe(texts_of(12), labels=[label_for([batch])])
    assert table["rel"].tolist() == [True, False, False]
    assert table["rel_score"].tolist() == [1, 0, 0]
    assert table["rel_null"].tolist() == [0, 0, 0]


def test_a_label_must_hold_on_both_halves_and_on_enough_instances() -> None:
    words = [torch.tensor([-1, *range(12), -1])] * 8
    odd_only = [Instance("rel", text, word, (word + (3 if text % 2 else 2),)) for text in range(8) for word in range(8)]
    few = [Instance("rel", text, 0, (3,)) for text in (0, 1, 3)]
    heads = Heads(planted([at_offset(3)], causal=False))
    for instances, expected in ((odd_only, False), (few, None)):
        batch = sentence_batch(words, instances)
        table = heads.observe(texts_of(12), labels=[label_for([batch])])
        found = table["rel"].iloc[0]
        assert (found is not None and not bool(found)) if expected is False else table["rel"].isna().all()
        assert table["rel_score"].iloc[0] == 1


def test_a_treebank_on_a_real_tokenizer(tiny_classifier: Path, tmp_path: Path) -> None:
    from headlab.models import open_model
    from headlab.models.texts.encoding import text_batches

    sentence = "\n".join(
        f"{i}\t{w}\t_\t_\t_\t_\t{h}\t{r}\t_\t_"
        for i, w, h, r in [(1, "the", 2, "det"), (2, "cat", 3, "nsubj"), (3, "sleeps", 0, "root")]
    )
    path = tmp_path / "tiny.conllu"
    path.write_text("\n\n".join([sentence] * 24) + "\n\n", encoding="utf-8")
    labels = load_labels(["syntactic"], conllu=path)
    assert {label.name for label in labels} == {
        f"syntactic:{relation}:{way}" for relation in ("det", "nsubj") for way in ("dependent-head", "head-dependent")
    }
    checkpoint = open_model(str(tiny_classifier))
    table = Heads(checkpoint).observe(text_batches(checkpoint, ["the cat sleeps"]), labels=labels)
    assert (table["syntactic:det:dependent-head_n"] == 12).all()
    assert (table["syntactic:det:dependent-head_null"] == 1).all()  # the next word, always
    assert (table["labels"] == "none").all()
    with pytest.raises(UsageError, match="nsubj"):
        syntactic(path, "nsub")


# ---- coreference and alignment


def test_mentions(tmp_path: Path) -> None:
    path = tmp_path / "mentions.jsonl"
    path.write_text('{"words": ["Ann", "said", "she", "left"], "clusters": [[[0, 1, 0], [2, 3]]]}\n', encoding="utf-8")
    (document,) = read_mentions(path)
    assert document.clusters == ((0, 2),)
    (label,) = load_labels(["coreference"], mentions=path)
    assert label.name == "coreference"
    for bad in ('{"words": ["a"]}', "no json", '{"words": ["a"], "clusters": [[[0, 2]]]}'):
        path.write_text(bad + "\n", encoding="utf-8")
        with pytest.raises(DataError, match="text 1"):
            read_mentions(path)


def test_alignment_files_and_error_rate(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.en", "a.pt", "a.gold")]
    for path, line in zip(files, ("the red cat", "o gato vermelho", "0-0 1-2 2-1 1?1"), strict=True):
        path.write_text(line + "\n", encoding="utf-8")
    (pair,) = read_alignments(*files)
    assert pair.sure == {(0, 0), (1, 2), (2, 1)} and pair.possible == pair.sure | {(1, 1)}
    found = alignment_instances(0, pair, {0, 1, 2}, {0, 1, 2})
    assert [one.targets for one in found if one.name == "possible"] == [(0,), (1, 2), (1,)]
    # Links found: 0-0 (sure), 1-1 (possible), 0-2 (neither): 1 - (1 + 2) / (3 + 3).
    assert alignment_error_rate(1, 2, 3, 3) == 0.5
    files[2].write_text("0-7\n", encoding="utf-8")
    with pytest.raises(DataError, match="beyond"):
        read_alignments(*files)
    files[2].write_text("0:1\n", encoding="utf-8")
    with pytest.raises(DataError, match="no link"):
        read_alignments(*files)


def test_alignment_of_planted_sentences_counts_the_error_rate() -> None:
    """A head that is right on three of four words, each with one sure link: AER = 1 - (3 + 3) / (4 + 4)."""
    words = [torch.tensor([-1, *range(12), -1])] * 8
    instances = []
    for text in range(8):
        for word in range(4):
            target = word + 3 if word else 9
            instances += [Instance(name, text, word, (target,)) for name in ("word", "sure", "possible")]
    batch = sentence_batch(words, [])
    extra = dict(batch.extra) | as_extra(instances, range(8), ["word", "sure", "possible"])
    batch = Batch(batch.inputs, batch.source, None, batch.examples, extra)
    label = Label(
        "alignment",
        "word_pairs",
        0.1,
        None,
        "d",
        "s",
        input=Given((batch,)),
        pair="word",
        margin=0.1,
        beside=("sure", "possible"),
    )
    table = Heads(planted([at_offset(3)], causal=False)).observe(texts_of(12), labels=[label])
    assert table["alignment_score"].iloc[0] == pytest.approx(0.75)
    assert table["alignment_aer"].iloc[0] == pytest.approx(0.25)
