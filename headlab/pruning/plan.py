"""The cells of a sweep: which heads each strategy removes under each budget, random controls included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headlab.base.errors import UsageError
from headlab.base.masks import HeadMask
from headlab.pruning.budgets import Budget, budget_text, parse_budgets
from headlab.pruning.orderings import Ordering, order
from headlab.scores import matched_random, score

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

LABEL, MATCHED = "label:", "matched:"


@dataclass(frozen=True)
class Cell:
    """One point of a pruning curve: a strategy's mask under a budget."""

    strategy: str
    seed: int
    kinds: str
    budget: str
    n_heads: int  # that the ordering chooses from
    mask: HeadMask


def plan(
    heads: Heads,
    task: Task,
    orderings: Ordering | Iterable[Ordering],
    budgets: str | Budget | Iterable[Budget],
    *,
    seeds: int = 3,
    seed: int = 0,
) -> list[Cell]:
    """Every cell of a sweep: the orderings in the order given, then `seeds` random orders of the same heads.

    An ordering by label is followed by its own control, `matched:<label>`: random heads of the same layers. Whole KV
    groups and heads that stay in each layer hold for random orders as well.

    Deterministic orderings carry the sweep's `seed`; the random ones have `seed`, `seed + 1` and so on. Raises
    UsageError for no ordering, for two that a table could not tell apart, for no random control, and for budgets
    out of range.
    """
    given = list(orderings) if isinstance(orderings, Iterable) and not isinstance(orderings, Ordering) else [orderings]
    if not all(isinstance(one, Ordering) for one in given):
        raise UsageError(
            "A sweep takes orderings, and something else was given.", "Make them of scores: headlab.order(scores)."
        )
    if seeds < 1:
        raise UsageError(f"{seeds} random orders are no control.", "Ask for at least 1; 3 or more give a band.")
    _require_comparable(given)
    amounts = parse_budgets(budgets)
    several = range(seed, seed + seeds)
    matched = [control for one in given for control in _matched(heads, one, amounts, several)]
    everything = _distinct([*given, *matched, *_controls(heads, task, given, several)], seed)
    return [
        Cell(
            strategy=ordering.name,
            seed=seed if ordering.seed is None else ordering.seed,
            kinds="+".join(ordering.kinds),
            budget=budget_text(budget),
            n_heads=len(ordering),
            mask=HeadMask.removing(ordering.cut(budget), like=heads),
        )
        for ordering in everything
        for budget in amounts
    ]


def _require_comparable(orderings: Sequence[Ordering]) -> None:
    if not orderings:
        raise UsageError("There is no ordering to sweep.", "Give at least one: order(scores).")
    if len({(ordering.sizes is None, ordering.keep_at_least) for ordering in orderings}) > 1:
        raise UsageError(
            "The orderings differ in what goes together or stays, so they have no common control.",
            "Order all of them with the same groups and keep_at_least.",
        )
    if len({ordering.within for ordering in orderings}) > 1:
        raise UsageError(
            "The orderings differ in `within`, which the table of a sweep does not tell apart.",
            "Order all of them within the model, the layer or the kind, or sweep each on its own.",
        )


def _controls(heads: Heads, task: Task, orderings: Sequence[Ordering], seeds: Iterable[int]) -> list[Ordering]:
    """Random orders of the same heads and in the same shares as the orderings, one per seed and choice of heads."""
    choices = {frozenset(ordering.heads): ordering for ordering in orderings}
    controls = []
    for seed in seeds:
        ranks = score("random", heads, task, seed=seed)
        for chosen, ordering in choices.items():
            kept = ranks[[tuple(head) in chosen for head in ranks.index]]
            groups = None if ordering.sizes is None else heads.kv_groups
            keep = ordering.keep_at_least
            controls.append(order(kept, ordering.within, seed=seed, keep_at_least=keep, groups=groups))
    return controls


def _matched(heads: Heads, ordering: Ordering, budgets: Sequence[Budget], seeds: Iterable[int]) -> list[Ordering]:
    """For an order by label, random heads of the same layers as its largest cut has, one order per seed."""
    if not ordering.name.startswith(LABEL) or ordering.sizes is not None or ordering.keep_at_least:
        return []
    chosen = max((ordering.cut(budget) for budget in budgets), key=len)
    found = []
    for seed in seeds:
        drawn = matched_random(chosen, heads.index, seed)
        rest = [head for head in ordering.heads if head not in set(drawn)]
        name = MATCHED + ordering.name.removeprefix(LABEL)
        found.append(Ordering((*drawn, *rest), name, ordering.within, seed))
    return found


def _distinct(orderings: Sequence[Ordering], seed: int) -> list[Ordering]:
    """Each ordering once; a random one may also have been given by the caller."""
    found: dict[tuple, Ordering] = {}
    for ordering in orderings:
        own_seed = seed if ordering.seed is None else ordering.seed
        label = (ordering.name, own_seed, ordering.kinds)
        other = found.setdefault(label, ordering)
        if other.heads != ordering.heads:
            raise UsageError(
                f"Two different orderings are called {ordering.name!r} (seed {own_seed}, {'+'.join(ordering.kinds)}).",
                "Give them names of their own, or a random one its seed: order(scores, name=..., seed=...).",
            )
    return list(found.values())
