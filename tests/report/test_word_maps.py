"""Maps between words: summed over the pieces looked at, averaged over those that look, nothing lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headlab.base.errors import DataError
from headlab.runs.maps import AttentionMap, Places, load_maps, save_maps
from headlab.runs.word_maps import word_map, word_maps

TOKENS = ["[CLS]", "un", "##tie", "it", "[SEP]"]
OFFSETS = [None, (0, 2), (2, 5), (6, 8), None]
WORDS = [None, 0, 0, 1, None]
WEIGHTS = np.array(
    [
        [0.2, 0.2, 0.2, 0.2, 0.2],
        [0.0, 0.5, 0.0, 0.5, 0.0],
        [0.1, 0.1, 0.2, 0.3, 0.3],
        [0.0, 0.6, 0.4, 0.0, 0.0],
        [1.0, 0.0, 0.0, 0.0, 0.0],
    ]
)


def _map(places: Places | None) -> AttentionMap:
    return AttentionMap("encoder", 0, 1, 7, WEIGHTS, TOKENS, TOKENS, query_places=places, key_places=places)


def test_words_sum_over_keys_and_average_over_queries() -> None:
    found = word_map(_map(Places("untie it", OFFSETS, WORDS)))
    assert found.index.tolist() == found.columns.tolist() == ["[CLS]", "untie", "it", "[SEP]"]
    # untie: the mean of its two pieces' rows, (0, .5, .5, 0) and (.1, .3, .3, .3) after summing over keys
    expected = [[0.2, 0.4, 0.2, 0.2], [0.05, 0.4, 0.4, 0.15], [0, 1, 0, 0], [1, 0, 0, 0]]
    np.testing.assert_allclose(found.to_numpy(), expected)


def test_words_without_offsets_are_put_together_from_their_pieces() -> None:
    assert word_map(_map(Places("untie it", None, WORDS))).index.tolist() == ["[CLS]", "untie", "it", "[SEP]"]


def test_a_tidy_table_holds_every_cell_once() -> None:
    table = word_maps([_map(Places("untie it", OFFSETS, WORDS))])
    assert len(table) == 16 and table["text"].unique().tolist() == [7]
    row = table[(table["query_word"] == "untie") & (table["key_word"] == "it")].iloc[0]
    assert (row["query"], row["key"], row["weight"]) == (1, 2, pytest.approx(0.4))
    assert word_maps([]).columns.tolist() == table.columns.tolist()


def test_maps_of_unknown_words_are_refused() -> None:
    for places in (None, Places("untie it", OFFSETS, None)):
        with pytest.raises(DataError, match="words of these tokens are not known"):
            word_map(_map(places))


def test_places_come_back_from_the_file(tmp_path: Path) -> None:
    save_maps(tmp_path, [_map(Places("untie it", OFFSETS, WORDS)), _map(None)])
    first, second = load_maps(tmp_path)
    assert first.query_places == Places("untie it", OFFSETS, WORDS) and second.query_places is None
    np.testing.assert_allclose(word_map(first), word_map(_map(Places("untie it", OFFSETS, WORDS))), atol=1e-3)
