"""Word alignments of two languages: Pharaoh files, and the alignment error rate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from headlab.base.errors import DataError
from headlab.models.texts.reading import read_text
from headlab.models.texts.words import WordText, spaced

_LINK = re.compile(r"(\d+)([-p?])(\d+)")


@dataclass(frozen=True)
class AlignedPair:
    """A sentence, its translation, and links (source word, target word); the possible ones include the sure ones."""

    source: WordText
    target: WordText
    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def read_alignments(source: str | Path, target: str | Path, gold: str | Path) -> list[AlignedPair]:
    """Sentence pairs, words between blanks, with gold links in Pharaoh format: `0-0 1-2`, possible ones `1?2` or `1p2`.

    Raises DataError for files of different lengths, links that are none, and links to words that are not there.
    """
    lines = [read_text(path, may_be_empty=True).rstrip("\r\n").split("\n") for path in (source, target, gold)]
    counts = list(map(len, lines))
    if len(set(counts)) > 1:
        raise DataError(
            f"{source}, {target} and {gold} have {counts[0]}, {counts[1]} and {counts[2]} lines.",
            "Line n of each belongs to line n of the others.",
        )
    pairs = []
    for number, (first, second, links) in enumerate(zip(*lines, strict=True), 1):
        words = spaced(first.split()), spaced(second.split())
        sure, possible = _links(links, f"{gold}, line {number}", len(words[0].words), len(words[1].words))
        pairs.append(AlignedPair(*words, sure, possible))
    return pairs


def _links(line: str, where: str, n_source: int, n_target: int) -> tuple[frozenset, frozenset]:
    sure, possible = set(), set()
    for link in line.split():
        match = _LINK.fullmatch(link)
        if match is None:
            raise DataError(f"{where}: {link!r} is no link.", "Links are written 0-0, possible ones 1?2 or 1p2.")
        pair = int(match[1]), int(match[3])
        if pair[0] >= n_source or pair[1] >= n_target:
            raise DataError(
                f"{where}: {link!r} is beyond {n_source} and {n_target} words.",
                "Words are counted from 0, between blanks.",
            )
        possible.add(pair)
        if match[2] == "-":
            sure.add(pair)
    return frozenset(sure), frozenset(possible)


def alignment_error_rate(sure_hits: float, possible_hits: float, n_links: float, n_sure: float) -> float:
    """1 - (|A and S| + |A and P|) / (|A| + |S|), after Och and Ney 2003; A the links found, S sure, P possible."""
    return 1 - (sure_hits + possible_hits) / (n_links + n_sure)
