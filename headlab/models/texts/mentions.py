"""Coreference from a simple file: one JSON document a line, its words and who is mentioned where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headlab.base.errors import DataError
from headlab.models.texts.reading import read_texts
from headlab.models.texts.words import WordText, spaced

FORMAT = 'A line is {"words": ["Ann", "said", "she", "left"], "clusters": [[[0, 1, 0], [2, 3, 2]]]}: start, end, head.'


@dataclass(frozen=True)
class Document:
    """A text with its clusters of mentions; each mention is the place of its head word, in order."""

    text: WordText
    clusters: tuple[tuple[int, ...], ...]


def read_mentions(path: str | Path) -> list[Document]:
    """The documents of a mention file: `words`, and `clusters` of mentions [start, end, head] (end exclusive).

    The head may be left out and is then the last word, as in English noun phrases. Raises DataError, with the line,
    for what is not of that form.
    """
    documents = []
    for number, line in enumerate(read_texts(path), 1):
        try:
            row = json.loads(line)
            words = [str(word) for word in row["words"]]
            clusters = tuple(
                tuple(sorted({_head(mention, len(words)) for mention in cluster})) for cluster in row["clusters"]
            )
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataError(f"{path}, text {number}: no words with clusters of mentions ({error}).", FORMAT) from error
        documents.append(Document(spaced(words), clusters))
    return documents


def _head(mention: Any, n_words: int) -> int:
    start, end, *given = mention
    head = given[0] if given else end - 1
    if not 0 <= start <= head < end <= n_words:
        raise ValueError(f"the mention {mention} is not within {n_words} words")
    return int(head)
