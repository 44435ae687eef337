"""Texts as words: which pieces of a tokenized text belong to which word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headlab.base.errors import DataError, UsageError
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.padding import decoder_tokens, model_inputs, padded, padded_tokens
from headlab.models.texts.special_tokens import added_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from headlab.models.checkpoint import Checkpoint


@dataclass(frozen=True)
class WordText:
    """A text whose words and their places (start, end) in it are known."""

    words: tuple[str, ...]
    text: str
    spans: tuple[tuple[int, int], ...]


def spaced(words: Sequence[str]) -> WordText:
    """Words with blanks between them."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return WordText(tuple(words), " ".join(words), tuple(spans))


@dataclass(frozen=True)
class Pieces:
    """Token ids of a text, the word that each is a piece of (-1: none), and which are special.

    `n_cut` words lie beyond the model's limit; `n_lost` others have no piece of their own.
    """

    ids: list[int]
    words: list[int]
    special: list[bool]
    n_cut: int = 0
    n_lost: int = 0


def pieces_of(checkpoint: Checkpoint, text: WordText, *, max_length: int | None = None, target: bool = False) -> Pieces:
    """Tokenize a text and give each piece to the word in which its first character lies.

    Where the tokenizer gives no offsets, each word is tokenized alone, with a blank before it where there is one.
    `target` asks for the tokenizer's target language, where it has one. What goes beyond `max_length` tokens (else
    the model's limit) is cut off at a word's end.
    """
    tokenizer = checkpoint.tokenizer
    if tokenizer is None:
        raise UsageError(
            f"The model {checkpoint.name!r} has no tokenizer, and words were given.",
            "Save its tokenizer into the folder of the model.",
        )
    ids, words = word_of_each(tokenizer, text, "text_target" if target else "text")
    added = added_tokens(tokenizer)
    limits = [limit for limit in (max_length, checkpoint.max_length) if limit is not None]
    kept = len(ids) if not limits else min(len(ids), min(limits) - len(added))
    while 0 < kept < len(ids) and words[kept] >= 0 and words[kept] == words[kept - 1]:
        kept -= 1
    last = max(words[:kept], default=-1)
    return Pieces(
        [*added.before, *ids[:kept], *added.after],
        [-1] * len(added.before) + words[:kept] + [-1] * len(added.after),
        [True] * len(added.before) + [False] * kept + [True] * len(added.after),
        n_cut=0 if kept == len(ids) else len(text.words) - 1 - last,
        n_lost=last + 1 - len(set(words[:kept]) - {-1}),
    )


def token_offsets(tokenizer: Any, text: str) -> list[tuple[int, int]] | None:
    """The place of each token, (start, end) in characters of the text; None where the tokenizer gives none."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    return [(int(start), int(end)) for start, end in found]


def word_of_each(tokenizer: Any, text: WordText, side: str = "text") -> tuple[list[int], list[int]]:
    """Token ids of a text and the word of each (-1: none), by offsets where the tokenizer gives them, else word by
    word."""
    by_offsets = getattr(tokenizer, "is_fast", False)
    return _by_offsets(tokenizer, text, side) if by_offsets else _word_by_word(tokenizer, text, side)


def _by_offsets(tokenizer: Any, text: WordText, side: str) -> tuple[list[int], list[int]]:
    found = tokenizer(**{side: text.text}, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    owner: dict[int, int] = {}
    for number, (start, end) in enumerate(text.spans):
        for character in range(start, end):
            owner.setdefault(character, number)
    words = []
    for start, end in found["offset_mapping"]:
        places = (c for c in range(start, end) if c < len(text.text) and not text.text[c].isspace())
        words.append(owner.get(next(places, -1), -1))
    return list(found["input_ids"]), words


def _word_by_word(tokenizer: Any, text: WordText, side: str) -> tuple[list[int], list[int]]:
    ids: list[int] = []
    words: list[int] = []
    for number, (word, (start, _)) in enumerate(zip(text.words, text.spans, strict=True)):
        blank = " " if start and text.text[start - 1] == " " else ""
        found = tokenizer(**{side: blank + word}, add_special_tokens=False, verbose=False)["input_ids"]
        ids += found
        words += [number] * len(found)
    return ids, words


def word_batch(checkpoint: Checkpoint, texts: Sequence[Pieces], examples: Sequence[int], **extra: Any) -> Batch:
    """A batch of one text for each example, padded on the right; extra: `query_words` = `key_words` (batch, token).

    A sequence-to-sequence model is asked for its encoder alone; its decoder is given the same text.
    """
    if checkpoint.is_encoder_decoder:
        return pair_batch(checkpoint, texts, texts, examples, **extra | {"word_kinds": ("encoder",)})
    source, words = word_tokens(checkpoint, texts)
    extra = {"query_words": words, "key_words": words, "word_kinds": ("encoder", "decoder")} | extra
    return Batch(model_inputs(checkpoint.model, source), source, examples=tuple(examples), extra=extra)


def pair_batch(
    checkpoint: Checkpoint, sources: Sequence[Pieces], targets: Sequence[Pieces], examples: Sequence[int], **extra: Any
) -> Batch:
    """Texts and their translations; a decoder query belongs to the word that it predicts, one place ahead.

    Extra: `query_words` of the decoder and `key_words` of the encoder, for attention from one to the other.
    """
    source, key_words = word_tokens(checkpoint, sources)
    target = decoder_tokens(checkpoint, [text.ids for text in targets], [text.special for text in targets])
    target.separator[:, 0] = False  # an end token that starts the decoder closes nothing
    about_encoder = "encoder" in extra.setdefault("word_kinds", ("cross",))
    query_words = key_words if about_encoder else padded([text.words for text in targets], -1)
    extra |= {"query_words": query_words, "key_words": key_words}
    return Batch(model_inputs(checkpoint.model, source, target), source, target, tuple(examples), extra)


def word_tokens(checkpoint: Checkpoint, texts: Sequence[Pieces]) -> tuple[Tokens, Tensor]:
    """Padded tokens of texts, and the word of each, (batch, token)."""
    if not texts:
        raise DataError("There is no text.", "Give at least one sentence.")
    ids, special = [text.ids for text in texts], [text.special for text in texts]
    return padded_tokens(checkpoint.tokenizer, ids, special), padded([text.words for text in texts], -1)
