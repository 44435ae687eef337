"""In which order heads go: a sort of a score column, over the model or in equal shares of its layers or kinds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pandas as pd

from headlab.attention.masks import KINDS, HeadId
from headlab.errors import UsageError, unknown_name
from headlab.pruning.budgets import Budget, budget_size

WITHIN = {"model": [], "layer": ["kind", "layer"], "kind": ["kind"]}
INDEX = ["kind", "layer", "head"]


@dataclass(frozen=True)
class Ordering(Sequence[HeadId]):
    """Heads, least important first; `name` is the strategy in a sweep, `seed` the one that a random order has."""

    heads: tuple[HeadId, ...]
    name: str
    within: str = "model"
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.heads)

    @overload
    def __getitem__(self, place: int) -> HeadId: ...
    @overload
    def __getitem__(self, place: slice) -> list[HeadId]: ...
    def __getitem__(self, place: int | slice) -> HeadId | list[HeadId]:
        return list(self.heads[place]) if isinstance(place, slice) else self.heads[place]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention that the ordering takes heads from."""
        present = {head.kind for head in self.heads}
        return tuple(kind for kind in KINDS if kind in present)

    def cut(self, budget: Budget) -> list[HeadId]:
        """The heads that go under a budget (12, "10%" or 0.1 of this ordering's heads); UsageError out of range."""
        return self[: budget_size(budget, len(self))]


def order(
    scores: pd.Series,
    within: str = "model",
    *,
    kinds: Iterable[str] | None = None,
    name: str | None = None,
    seed: int | None = None,
) -> Ordering:
    """Heads from least to most important by a score column indexed by (kind, layer, head).

    within="layer" (or "kind") takes heads in turn, so that every cut takes an equal share of each layer (kind), to
    the head; the least important go first among equals. Equal scores keep the order of the index, and heads without
    a score go last, since nothing speaks for removing them. `kinds` leaves the other kinds alone. Raises UsageError
    for an unknown `within` or kind, another index, and scores that are all missing.
    """
    if within not in WITHIN:
        raise unknown_name("within", within, WITHIN)
    chosen = _of_kinds(scores, kinds)
    values = chosen.to_numpy(dtype=float, na_value=np.nan)
    if not len(values) or np.isnan(values).all():
        raise UsageError(f"The score {scores.name!r} has no values to order heads by.", "Choose another score.")
    table = pd.DataFrame({"score": values, "turn": 0.0}, index=chosen.index).sort_values("score", kind="stable")
    if WITHIN[within]:
        groups = table.groupby(level=WITHIN[within], sort=False)["score"]
        # The middle of the head's place in its group, as a share: sorting by it serves large and small groups fairly.
        table["turn"] = (groups.cumcount() + 0.5) / groups.transform("size")
    table = table.sort_values("turn", kind="stable")
    found = tuple(HeadId(str(kind), int(layer), int(head)) for kind, layer, head in table.index)
    return Ordering(found, name or str(scores.name or "unnamed").removeprefix("score_"), within, seed)


def _of_kinds(scores: pd.Series, kinds: Iterable[str] | None) -> pd.Series:
    if list(scores.index.names) != INDEX or not scores.index.is_unique:
        raise UsageError("The scores are not indexed by kind, layer and head.", "Take a column of the head table.")
    if kinds is None:
        return scores
    present = set(scores.index.get_level_values("kind"))
    wanted = {kinds} if isinstance(kinds, str) else set(kinds)
    for kind in sorted(wanted - present):
        raise unknown_name("kind of attention", kind, present)
    return scores[scores.index.get_level_values("kind").isin(wanted)]
