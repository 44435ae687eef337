"""Tokens know where they are in their text, also those of a text that was split."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest

from headlab.models.opening import open_model
from headlab.models.texts.encoding import encode_texts
from headlab.models.texts.places import blank_words, token_places
from headlab.models.texts.words import WordText

pytestmark = pytest.mark.demo
opened = functools.cache(open_model)
TEXT = "An unbelievable story, told twice."


@pytest.mark.parametrize("name", ["demo:minilm", "demo:smollm2"])
@pytest.mark.parametrize("max_length", [None, 6])
def test_offsets_cut_the_tokens_out_of_the_text(name: str, max_length: int | None) -> None:
    checkpoint = opened(name)
    texts = [blank_words("Short one."), blank_words(TEXT)]
    encoded = encode_texts(checkpoint, [t.text for t in texts], max_length=max_length)
    covered = ""
    for place in range(len(encoded)):
        found = token_places(checkpoint, encoded, texts, place)
        assert found.offsets is not None and found.words is not None
        assert [offset is None for offset in found.offsets] == encoded.special[place]
        for token, offset, word in zip(encoded.ids[place], found.offsets, found.words):
            if offset is None:
                assert word is None
                continue
            piece = found.text[offset[0] : offset[1]]
            assert piece.strip().lower() == checkpoint.tokenizer.decode([token]).strip().removeprefix("##").lower()
            start, end = texts[encoded.text[place]].spans[word]
            assert piece.strip() in found.text[start:end]
            covered += piece.strip() if encoded.text[place] == 1 else ""
    assert covered == TEXT.replace(" ", "")


def test_a_tokenizer_without_offsets_gives_words_where_they_are_sure() -> None:
    checkpoint = opened("demo:firefox-en-pt")
    texts = [blank_words(TEXT)]
    encoded = encode_texts(checkpoint, [TEXT])
    slow = _slow(checkpoint)
    found = token_places(slow, encoded, texts, 0)
    assert found.offsets is None and found.words == token_places(checkpoint, encoded, texts, 0).words
    glued = [WordText(("An", "unbeliev", "able"), TEXT, ((0, 2), (3, 10), (10, 15)))]
    assert token_places(slow, encoded, glued, 0).words is None  # these words have other pieces than the text


def _slow(checkpoint) -> SimpleNamespace:
    """The same checkpoint with a tokenizer that answers with ids alone."""

    def tokenize(text: str, **_: object) -> dict:
        return {"input_ids": checkpoint.tokenizer(text, add_special_tokens=False)["input_ids"]}

    return SimpleNamespace(tokenizer=tokenize)
