"""Choosing examples: seeded splits in which every group has its share, and limits that treat groups alike."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

import numpy as np

from headlab.base.errors import DataError, UsageError

NAMES = ("all", "select", "report")
_ALLOWED = 'Write per cent that add up to 100 at most ("50:50", "20%:80%") or numbers of examples ("40:160").'


def spread(groups: Sequence[Hashable], seed: int | None = None) -> np.ndarray:
    """Positions ordered so that any beginning holds the groups in proportion, to one example a group.

    Within a group the order is that of a seeded permutation, or as given where `seed` is None.
    """
    generator = None if seed is None else np.random.default_rng(seed)
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    turn = np.empty(len(groups))
    for places in members.values():
        order = np.arange(len(places)) if generator is None else generator.permutation(len(places))
        turn[np.asarray(places)[order]] = (np.arange(len(places)) + 0.5) / len(places)
    tie = np.arange(len(groups)) if generator is None else generator.permutation(len(groups))
    return np.lexsort((tie, turn))


def limited(groups: Sequence[Hashable], limit: int | None) -> list[int]:
    """The first positions of every group in proportion, `limit` in all, in their given order."""
    if limit is None or limit >= len(groups):
        return list(range(len(groups)))
    return sorted(int(place) for place in spread(groups)[:limit])


def parse_split(text: str, n_examples: int) -> tuple[int, int]:
    """Numbers of examples to select on and to report on; UsageError for what is no split, DataError for too few."""
    match = re.fullmatch(r"\s*(\d+)(%?)\s*:\s*(\d+)(%?)\s*", str(text))
    if not match or match[2] != match[4]:
        raise UsageError(f"{text!r} is not a split.", _ALLOWED)
    first, second = int(match[1]), int(match[3])
    if match[2] or first + second == 100:
        if first + second > 100 or first + second == 0:
            raise UsageError(f"The split {text!r} is out of range.", _ALLOWED)
        select = round(n_examples * first / 100)
        return select, min(n_examples - select, round(n_examples * second / 100 + 1e-9))
    if first + second > n_examples:
        raise DataError(
            f"The split {text!r} needs {first + second} examples and there are {n_examples}.",
            "Give more data, a higher limit, or a smaller split.",
        )
    return first, second


def split_positions(groups: Sequence[Hashable], text: str, seed: int) -> dict[str, np.ndarray]:
    """Sorted positions of "all", "select" and "report"; the last two share none."""
    select, report = parse_split(text, len(groups))
    order = spread(groups, seed)
    return {
        "all": np.arange(len(groups)),
        "select": np.sort(order[:select]),
        "report": np.sort(order[select : select + report]),
    }
