"""Texts become sequences and batches with nothing lost and nothing counted that is padding."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.base.errors import DataError, UsageError
from headlab.models import open_model
from headlab.models.texts.encoding import batches, encode_texts, text_batches
from headlab.models.texts.reading import read_texts

TEXTS = ["the cat sat on a mat .", "dog", "", "a dog ran", "the dog ran far away from the house in the rain and sat ."]


@pytest.fixture(scope="module")
def bert(bert_folder: Path):
    return open_model(str(bert_folder))


def test_special_tokens_stand_around_each_sequence(bert) -> None:
    encoded = encode_texts(bert, ["a dog ran"])
    cls, sep = bert.tokenizer.cls_token_id, bert.tokenizer.sep_token_id
    own = bert.tokenizer.convert_tokens_to_ids(["a", "dog", "ran"])
    assert encoded.ids == [[cls, *own, sep]] == [bert.tokenizer("a dog ran")["input_ids"]]
    assert encoded.special == [[True, False, False, False, True]]


def test_long_texts_are_split_and_short_ones_counted(bert) -> None:
    encoded = encode_texts(bert, TEXTS)  # the model takes 12 tokens, 10 beside [CLS] and [SEP]
    assert (encoded.n_texts, encoded.n_split, encoded.n_too_short, encoded.n_chunks) == (5, 1, 2, 4)
    assert encoded.text == [0, 3, 4, 4]
    bare = bert.tokenizer(TEXTS[4], add_special_tokens=False)["input_ids"]
    assert len(bare) == 14
    assert encoded.ids[2][1:-1] + encoded.ids[3][1:-1] == bare
    assert [len(ids) for ids in encoded.ids[2:]] == [9, 9]


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    limit=st.integers(4, 12),
)
@settings(max_examples=40, deadline=None)
def test_no_token_is_lost_or_repeated_by_splitting(bert, lengths: list[int], limit: int) -> None:
    texts = [" ".join(["cat", "dog", "mat"][place % 3] for place in range(length)) for length in lengths]
    if max(lengths) < 2:
        with pytest.raises(DataError, match="2 tokens or more"):
            encode_texts(bert, texts, max_length=limit)
        return
    encoded = encode_texts(bert, texts, max_length=limit)
    assert max(map(len, encoded.ids)) <= limit
    assert min(map(len, encoded.ids)) >= 4 or limit < 5  # evenly cut: two own tokens at least where that is possible
    for number, text in enumerate(texts):
        pieces = [ids[1:-1] for ids, owner in zip(encoded.ids, encoded.text, strict=True) if owner == number]
        whole = bert.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert sum(pieces, []) == (whole if len(whole) >= 2 else [])
    assert encoded.n_too_short == sum(length < 2 for length in lengths)
    assert encoded.n_split == sum(length > limit - 2 for length in lengths)


@pytest.mark.parametrize("pad_side", ["right", "left"])
def test_batches_hold_every_sequence_once_in_order_of_length(bert, pad_side: str) -> None:
    encoded = encode_texts(bert, TEXTS)
    found = list(batches(encoded, bert, batch_size=3, pad_side=pad_side))
    assert [batch.examples for batch in found] == [(1, 0, 2), (3,)]
    for batch in found:
        tokens = batch.source
        assert torch.equal(batch.inputs["attention_mask"], tokens.valid.long())
        assert not (tokens.special & ~tokens.valid).any() and not (tokens.separator & ~tokens.valid).any()
        for row, place in enumerate(batch.examples):
            assert tokens.ids[row][tokens.valid[row]].tolist() == encoded.ids[place]
            assert tokens.special[row][tokens.valid[row]].tolist() == encoded.special[place]
            assert tokens.separator[row].sum() == 1 and tokens.ids[row][tokens.separator[row]] == 3
        edge = tokens.valid[:, 0] if pad_side == "right" else tokens.valid[:, -1]
        assert edge.all()


@pytest.mark.parametrize("pad_side", ["right", "left"])
@pytest.mark.parametrize("folder", ["bert_folder", "llama_folder"])
def test_a_batch_equals_its_texts_one_by_one(folder: str, pad_side: str, request) -> None:
    checkpoint = open_model(str(request.getfixturevalue(folder)))
    (batch,) = batches(encode_texts(checkpoint, TEXTS[:4:3]), checkpoint, pad_side=pad_side)
    with torch.no_grad():
        together = checkpoint.model(**batch.inputs).logits
        for row, valid in enumerate(batch.source.valid):
            alone = checkpoint.model(input_ids=batch.source.ids[row][valid][None]).logits[0]
            torch.testing.assert_close(together[row][valid], alone, atol=1e-5, rtol=0)


def test_a_decoder_reads_the_text_shifted_by_its_start_token(bart_folder: Path) -> None:
    checkpoint = open_model(str(bart_folder))
    assert checkpoint.is_encoder_decoder
    (batch,) = text_batches(checkpoint, ["the cat sat", "a dog ran far away"])
    assert batch.target is not None
    ids, shifted = batch.source.ids, batch.inputs["decoder_input_ids"]
    assert (shifted[:, 0] == 3).all() and batch.target.special[:, 0].all()
    assert torch.equal(shifted[1, 1:], ids[1, :-1])
    assert torch.equal(batch.inputs["decoder_attention_mask"], batch.target.valid.long())
    with torch.no_grad():
        assert torch.isfinite(checkpoint.model(**batch.inputs).logits).all()


def test_no_separator_where_the_tokenizer_adds_none(llama_folder: Path) -> None:
    (batch,) = text_batches(open_model(str(llama_folder)), ["the cat sat", "a dog ran far"])
    assert not batch.source.special.any() and not batch.source.separator.any()


@pytest.mark.parametrize(
    ("texts", "options", "kind", "cause"),
    [
        ([], {}, DataError, "None of the 0 texts"),
        (["dog", ""], {}, DataError, "None of the 2 texts"),
        ("a dog ran", {}, UsageError, "One string was given"),
        (["a dog ran"], {"max_length": 13}, UsageError, "beyond the 12 tokens"),
        (["a dog ran"], {"max_length": 3}, UsageError, "leaves no room beside 2 special tokens"),
        (["a dog ran"], {"batch_size": 0}, UsageError, "batch_size = 0"),
    ],
)
def test_texts_that_cannot_be_read(bert, texts, options: dict, kind: type[Exception], cause: str) -> None:
    with pytest.raises(kind, match=cause):
        text_batches(bert, texts, **options)


def test_a_model_without_tokenizer_reads_no_texts(bert_folder: Path, tmp_path: Path) -> None:
    open_model(str(bert_folder)).model.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="has no tokenizer"):
        text_batches(open_model(str(tmp_path)), TEXTS)


def test_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeffOne line.\r\n\n  Zwölf Boxkämpfer. \n".encode())
    assert read_texts(path) == ["One line.", "Zwölf Boxkämpfer."]
    packed = tmp_path / "texts.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_texts(packed) == read_texts(path)


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("missing.txt", None, "There is no file"),
        ("empty.txt", b"", "is empty"),
        ("blank.txt", b" \n\t\n", "is empty"),
        ("latin.txt", "one\ntwo\ndr\u00fcben\n".encode("latin-1"), "is not UTF-8: line 3"),
        ("broken.gz", gzip.compress(b"text\n" * 99, mtime=0)[:-9], "not a whole gzip file"),
        ("plain.gz", b"text\n", "not a whole gzip file"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, cause: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=cause) as caught:
        read_texts(path)
    assert caught.value.remedy


def test_a_folder_is_no_text_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="directory"):
        read_texts(tmp_path)
