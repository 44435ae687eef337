"""Attention maps between words: summed over the pieces looked at, averaged over those that look (Clark et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from headlab.base.errors import DataError
from headlab.runs.maps import AttentionMap, Places
from headlab.runs.readable_tokens import readable_tokens

COLUMNS = ["kind", "layer", "head", "text", "query", "query_word", "key", "key_word", "weight"]


def word_map(item: AttentionMap) -> pd.DataFrame:
    """The map of one head between words, (query word, key word); rows sum to what the map's rows sum to.

    A token of no word (special tokens) stands for itself, so that no mass is lost. Raises DataError where the words
    of the tokens are not known.
    """
    rows, row_names = _units(item.query_tokens, item.query_places)
    columns, column_names = _units(item.key_tokens, item.key_places)
    summed = np.asarray(item.weights, dtype=float) @ np.eye(len(column_names))[columns]  # (query, key word)
    shares = np.eye(len(row_names))[rows]  # (query, query word)
    return pd.DataFrame((shares / shares.sum(axis=0)).T @ summed, index=row_names, columns=column_names)


def word_maps(maps: Iterable[AttentionMap]) -> pd.DataFrame:
    """Maps between words as a tidy table: whose head, which text, place and word of both sides, weight."""
    parts = []
    for item in maps:
        table = word_map(item)
        query, key = (side.ravel() for side in np.indices(table.shape))
        parts.append(
            pd.DataFrame(
                {
                    "kind": item.kind,
                    "layer": item.layer,
                    "head": item.head,
                    "text": item.text,
                    "query": query,
                    "query_word": table.index.to_numpy()[query],
                    "key": key,
                    "key_word": table.columns.to_numpy()[key],
                    "weight": table.to_numpy().ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def _units(tokens: Sequence[str], places: Places | None) -> tuple[np.ndarray, list[str]]:
    """For each token the unit that it belongs to, a word or itself, and the names of the units in order."""
    if places is None or places.words is None:
        raise DataError(
            "The words of these tokens are not known, so there are no maps between words.",
            "They are known for texts (--text, --conllu) whose tokens the tokenizer places.",
        )
    shown = readable_tokens(tokens)
    units: dict[object, int] = {}
    names: list[str] = []
    owner = []
    for i, word in enumerate(places.words):
        key = ("token", i) if word is None else word
        if key not in units:
            units[key] = len(units)
            names.append(shown[i] if word is None else _spelt(places, word, shown))
        owner.append(units[key])
    return np.array(owner), names


def _spelt(places: Places, word: int, shown: Sequence[str]) -> str:
    """A word as the text has it; put together from its pieces where their places are not known."""
    assert places.words is not None
    pieces = [i for i, each in enumerate(places.words) if each == word]
    if places.offsets is None:
        return "".join(shown[i] for i in pieces)
    known = [offset for i in pieces if (offset := places.offsets[i])]
    return places.text[min(start for start, _ in known) : max(end for _, end in known)].strip()
