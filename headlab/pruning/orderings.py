"""In which order heads go: a sort of a score column, over the model or in equal shares of its layers or kinds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pandas as pd

from headlab.base.errors import UsageError, unknown_name
from headlab.base.masks import KINDS, HeadId
from headlab.pruning.budgets import Budget, budget_size, budget_text

WITHIN = {"model": [], "layer": ["kind", "layer"], "kind": ["kind"]}
INDEX = ["kind", "layer", "head"]


@dataclass(frozen=True)
class Ordering(Sequence[HeadId]):
    """Heads, least important first; `name` is the strategy in a sweep, `seed` the one that a random order has.

    Where whole KV groups go, `sizes` are the numbers of heads that go together, in order; budgets then count groups.
    The last `kept` heads stay whatever the budget, `keep_at_least` in each layer.
    """

    heads: tuple[HeadId, ...]
    name: str
    within: str = "model"
    seed: int | None = None
    sizes: tuple[int, ...] | None = None
    keep_at_least: int = 0
    kept: int = 0

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
        """The heads that go under a budget (12, "10%" or 0.1 of this ordering's heads, or groups).

        Raises UsageError out of range, and where a layer would be left with fewer heads than asked for.
        """
        if self.sizes is None:
            n = budget_size(budget, len(self))
        else:
            n = sum(self.sizes[: budget_size(budget, len(self.sizes), "groups of heads")])
        if n > len(self) - self.kept:
            layers = len({head[:2] for head in self.heads})
            raise UsageError(
                f"A budget of {budget_text(budget)} removes {n} of {len(self)} heads; with at least "
                f"{self.keep_at_least} kept in each of {layers} layers, {len(self) - self.kept} can go.",
                f"Give budgets up to {len(self) - self.kept} heads, or keep fewer in each layer.",
            )
        return self[:n]


def order(
    scores: pd.Series,
    within: str = "model",
    *,
    kinds: Iterable[str] | None = None,
    name: str | None = None,
    seed: int | None = None,
    keep_at_least: int = 0,
    groups: pd.Series | None = None,
) -> Ordering:
    """Heads from least to most important by a score column indexed by (kind, layer, head).

    within="layer" (or "kind") takes heads in turn, so that every cut takes an equal share of each layer (kind), to
    the head; the least important go first among equals. Equal scores keep the order of the index, and heads without
    a score go last, since nothing speaks for removing them. `kinds` leaves the other kinds alone.

    `keep_at_least` heads of every layer, its most important ones, stay under any budget. With `groups` (such as
    `heads.kv_groups`) heads of one layer with the same number go together, by the mean of their scores. Raises
    UsageError for an unknown `within` or kind, another index, scores that are all missing, and layers that have fewer
    heads than are to be kept.
    """
    if within not in WITHIN:
        raise unknown_name("within", within, WITHIN)
    chosen = _of_kinds(scores, kinds)
    values = chosen.to_numpy(dtype=float, na_value=np.nan)
    if not len(values) or np.isnan(values).all():
        raise UsageError(f"The score {scores.name!r} has no values to order heads by.", "Choose another score.")
    members = _members(chosen.index, groups)
    means = [float(np.mean(values[places])) for places in members]  # NaN where a head has no score
    first = chosen.index[[places[0] for places in members]]
    table = pd.DataFrame({"score": means, "turn": 0.0, "members": members}, index=first)
    table = table.sort_values("score", kind="stable")
    if WITHIN[within]:
        shares = table.groupby(level=WITHIN[within], sort=False)["score"]
        # The middle of the head's place in its group, as a share: sorting by it serves large and small groups fairly.
        table["turn"] = (shares.cumcount() + 0.5) / shares.transform("size")
    table["stays"] = _stays(table, chosen.index, keep_at_least)
    table = table.sort_values(["stays", "turn"], kind="stable")
    heads = [chosen.index[place] for places in table["members"] for place in places]
    names = tuple(HeadId(str(kind), int(layer), int(head)) for kind, layer, head in heads)
    title = name or str(scores.name or "unnamed").removeprefix("score_")
    sizes = None if groups is None else tuple(map(len, table["members"]))
    kept = int(table.loc[table["stays"], "members"].map(len).sum())
    return Ordering(names, title, within, seed, sizes, keep_at_least, kept)


def _members(index: pd.MultiIndex, groups: pd.Series | None) -> list[list[int]]:
    """Places of the heads that go together, in the order of the index."""
    if groups is None:
        return [[place] for place in range(len(index))]
    found: dict[tuple, list[int]] = {}
    for place, (head, group) in enumerate(zip(index, groups.reindex(index), strict=True)):
        found.setdefault((head[0], head[1], group), []).append(place)
    return list(found.values())


def _stays(table: pd.DataFrame, index: pd.MultiIndex, keep_at_least: int) -> np.ndarray:
    """Which rows hold the most important heads of their layers, as many as are to be kept; rows are in score order."""
    if keep_at_least < 0:
        raise UsageError(f"{keep_at_least} heads of a layer cannot be kept.", "Give 0 or more.")
    sizes = pd.Series(1, index=index).groupby(level=["kind", "layer"]).sum()
    if len(sizes) and keep_at_least > sizes.min():
        kind, layer = sizes.idxmin()
        raise UsageError(
            f"{kind} layer {layer} has {sizes.min()} heads, so {keep_at_least} cannot be kept in it.",
            f"Keep at most {sizes.min()} in each layer.",
        )
    counts = table["members"].map(len)
    # Heads of the layer that are more important than this row's own.
    behind = counts[::-1].groupby(level=["kind", "layer"]).cumsum()[::-1].to_numpy() - counts.to_numpy()
    return behind < keep_at_least


def _of_kinds(scores: pd.Series, kinds: Iterable[str] | None) -> pd.Series:
    if not isinstance(scores, pd.Series):
        raise UsageError(
            f"Heads are ordered by a column of scores, not by {type(scores).__name__}.",
            "Give what headlab.score returns, or a column of the head table.",
        )
    if list(scores.index.names) != INDEX or not scores.index.is_unique:
        raise UsageError("The scores are not indexed by kind, layer and head.", "Take a column of the head table.")
    if kinds is None:
        return scores
    present = set(scores.index.get_level_values("kind"))
    wanted = {kinds} if isinstance(kinds, str) else set(kinds)
    for kind in sorted(wanted - present):
        raise unknown_name("kind of attention", kind, present)
    return scores[scores.index.get_level_values("kind").isin(wanted)]
