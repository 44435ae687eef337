"""Where the tokens of an encoded text are in it: offsets in characters, and the words that they are pieces of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headlab.models.texts.words import WordText, token_offsets, word_of_each

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint
    from headlab.models.texts.encoding import EncodedTexts


def blank_words(text: str) -> WordText:
    """A text whose words are what stands between blanks."""
    found = list(re.finditer(r"\S+", text))
    return WordText(tuple(m.group() for m in found), text, tuple(m.span() for m in found))


@dataclass(frozen=True)
class TokenPlaces:
    """One entry for each token of a sequence, None for those that the tokenizer added."""

    text: str
    offsets: list[tuple[int, int] | None] | None  # None: the tokenizer gives none
    words: list[int | None] | None  # None: the pieces of the words alone are not those of the text

    def shifted(self) -> TokenPlaces:
        """The places of a decoder's input, one token later behind its start token."""
        offsets = None if self.offsets is None else [None, *self.offsets[:-1]]
        return TokenPlaces(self.text, offsets, None if self.words is None else [None, *self.words[:-1]])


def token_places(checkpoint: Checkpoint, encoded: EncodedTexts, texts: Sequence[WordText], place: int) -> TokenPlaces:
    """Where the tokens of the sequence `place` of the encoded texts are, in characters and words of their text."""
    text = texts[encoded.text[place]]
    own = [i for i, special in enumerate(encoded.special[place]) if not special]
    piece = slice(encoded.start[place], encoded.start[place] + len(own))
    ids = [encoded.ids[place][i] for i in own]
    offsets = token_offsets(checkpoint.tokenizer, text.text)
    all_ids, all_words = word_of_each(checkpoint.tokenizer, text)
    words = [None if word < 0 else word for word in all_words[piece]] if all_ids[piece] == ids else None
    return TokenPlaces(
        text.text,
        None if offsets is None else _spread(offsets[piece], own, len(encoded.ids[place])),
        None if words is None else _spread(words, own, len(encoded.ids[place])),
    )


def _spread(values: Sequence[Any], places: Sequence[int], size: int) -> list[Any]:
    """Values at their places, None elsewhere."""
    found: list[Any] = [None] * size
    for place, value in zip(places, values, strict=True):
        found[place] = value
    return found
