"""Treebanks in CoNLL-U: sentences as words with their place in the text, their heads and relations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headlab.base.errors import DataError
from headlab.models.texts.reading import read_text
from headlab.models.texts.words import WordText

FORMAT = "CoNLL-U has ten columns between tabs and an empty line after each sentence."


@dataclass(frozen=True)
class Parsed(WordText):
    """A sentence with its syntax: the place of each word's head (-1 root, None not given) and its relation."""

    heads: tuple[int | None, ...] = ()
    relations: tuple[str | None, ...] = ()


def read_conllu(path: str | Path) -> list[Parsed]:
    """The sentences of a CoNLL-U file, words alone: a multiword token gives its words, empty nodes are left out.

    Words within a multiword token whose surface is not their forms one after the other (French `du` = `de` + `le`)
    share its place in the text. Raises DataError for a file that is missing, empty, not UTF-8 or not CoNLL-U.
    """
    import conllu

    text = read_text(path, may_be_empty=True).replace("\r\n", "\n")
    try:
        found = [_sentence(tokens) for tokens in conllu.parse(text)]
    except conllu.exceptions.ParseException as error:
        raise DataError(f"{path} is not CoNLL-U: {str(error).splitlines()[0]}", FORMAT) from error
    sentences = [sentence for sentence in found if sentence.words]
    if not sentences:
        raise DataError(f"{path} holds no sentence.", FORMAT)
    return sentences


def _sentence(tokens: Any) -> Parsed:
    words = [token for token in tokens if isinstance(token["id"], int)]
    for token in words:
        if "deprel" not in token:  # the parser takes lines of fewer columns
            raise DataError(f"The word {token['form']!r} has too few columns to be CoNLL-U.", FORMAT)
    number = {token["id"]: place for place, token in enumerate(words)}
    text, spans = _spans(tokens)
    heads = tuple(_head(token.get("head"), number) for token in words)
    relations = tuple(token.get("deprel") for token in words)
    return Parsed(tuple(token["form"] for token in words), text, spans, heads, relations)


def _head(head: Any, number: dict[int, int]) -> int | None:
    """Place of the head; -1 for the root, None where it is missing or no word of the sentence."""
    return -1 if head == 0 else number.get(head) if isinstance(head, int) else None


def _spans(tokens: Any) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text, put together from the forms and SpaceAfter=No, and where in it each word is."""
    text, spans, last_of_multiword = "", [], 0
    places: dict[int, tuple[int, int]] = {}  # of words within a multiword token
    for token in tokens:
        name, form = token["id"], token["form"]
        if isinstance(name, int) and name <= last_of_multiword:
            spans.append(places[name])
            continue
        if isinstance(name, tuple) and name[1] == ".":
            continue  # an empty node is not in the text
        start, text = len(text), text + form
        if isinstance(name, tuple):
            last_of_multiword = name[2]
            within = [t for t in tokens if isinstance(t["id"], int) and name[0] <= t["id"] <= name[2]]
            places |= _within(within, form, start)
        else:
            spans.append((start, len(text)))
        if (token.get("misc") or {}).get("SpaceAfter") != "No":
            text += " "
    return text.rstrip(), tuple(spans)


def _within(words: list[Any], surface: str, start: int) -> dict[int, tuple[int, int]]:
    if "".join(word["form"] for word in words) != surface:
        return {word["id"]: (start, start + len(surface)) for word in words}
    places = {}
    for word in words:
        places[word["id"]] = (start, start + len(word["form"]))
        start += len(word["form"])
    return places
