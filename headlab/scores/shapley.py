"""Shapley value: mean effect of the head over all orders in which heads could be removed (Held and Yang 2023)."""

from __future__ import annotations

import itertools
import math
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.base.errors import UsageError
from headlab.scores.measures.losses import Losses

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task

VARIANTS = {
    "zero": {"ablation": "zero"},
    "mean": {"ablation": "mean"},
    "resample": {"ablation": "resample"},
    "uniform": {"ablation": "uniform"},
}
EXACT_UP_TO = 8  # heads: 256 sets of heads cost less than the orders that would estimate the same
FEWEST = 8  # orders before the standard errors are believed


def score(
    heads: Heads, task: Task, *, split: str = "select", ablation: str = "zero", seed: int = 0, permutations: int = 64,
    precision: float = 0.01, truncation: float = 0.01, exact: bool | None = None, progress: Progress | None = None,
    journal: MutableMapping[str, list] | None = None, **_: Any,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Shapley value of the negative mean loss, (heads,), in the units of the loss; below 0 the head does harm.

    Heads are removed one by one in random orders (Ghorbani and Zou 2019). An order is cut short (`truncation`) once
    the loss was twice in a row within that share of the total of the loss without any head; what is left of the total
    is then spread over the heads still there, so that the values always sum to loss(no head) - loss(all heads). It
    stops after `permutations` orders, or (`precision`) when every standard error, of the draw of orders, is within
    that share of the total. Models of up to 8 heads are computed exactly (`exact` decides otherwise). A NaN under a
    mask makes its heads NaN. Mean losses that a `journal` (a mapping) holds are not computed again. Raises UsageError
    for fewer than 2 permutations.
    """
    if permutations < 2:
        raise UsageError(f"{permutations} orders give no standard error.", "Ask for at least 2 permutations.")
    losses = Losses(heads, task, split, ablation, seed, journal)
    names = [tuple(head) for head in heads.index]
    if exact or (exact is None and len(names) <= EXACT_UP_TO):
        return _exact(losses, names, progress), np.zeros(len(names))
    rng = np.random.default_rng(seed)
    total = losses.without(names) - losses.without([])
    found: list[np.ndarray] = []
    for _order in range(permutations):
        found.append(_walk(losses, names, rng.permutation(len(names)), total, truncation))
        if progress:
            progress(len(found), permutations, "random orders")
        if len(found) >= FEWEST and _errors(found).max() <= precision * abs(total):
            break
    if progress:
        progress(len(found), len(found), "random orders")
    return np.mean(found, axis=0), _errors(found)


def _walk(losses: Losses, names: list[tuple], order: np.ndarray, total: float, truncation: float) -> np.ndarray:
    """Rise of the loss at each head's removal, in one order."""
    rises = np.empty(len(names))
    before, end = losses.without([]), losses.without(names)
    near = 0
    for place, head in enumerate(order):
        if near == 2:
            rises[order[place:]] = (end - before) / (len(order) - place)
            break
        after = losses.without([names[gone] for gone in order[: place + 1]])
        rises[head] = after - before
        before = after
        near = near + 1 if truncation and abs(end - after) <= truncation * abs(total) else 0
    return rises


def _errors(found: list[np.ndarray]) -> np.ndarray:
    return np.std(found, axis=0, ddof=1) / len(found) ** 0.5


def _exact(losses: Losses, names: list[tuple], progress: Progress | None) -> np.ndarray:
    """Every set of heads once: the definition."""
    n = len(names)
    sets = [frozenset(chosen) for size in range(n + 1) for chosen in itertools.combinations(range(n), size)]
    loss = {}
    for done, removed in enumerate(sets, 1):
        loss[removed] = losses.without([names[place] for place in removed])
        if progress:
            progress(done, len(sets), "sets of heads")
    values = np.zeros(n)
    for removed, before in loss.items():
        for head in set(range(n)) - removed:
            share = math.factorial(len(removed)) * math.factorial(n - len(removed) - 1) / math.factorial(n)
            values[head] += share * (loss[removed | {head}] - before)
    return values
