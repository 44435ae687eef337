"""Shapley value: mean effect of the head over all orders in which heads could be removed (Held and Yang 2023)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from headlab.base.errors import UsageError
from headlab.base.progress import Steps
from headlab.scores.context import ScoreContext
from headlab.scores.measures.losses import Losses
from headlab.scores.score import BY_ABLATION, RemovalScore, Scores

EXACT_UP_TO = 8  # heads: 256 sets of heads cost less than the orders that would estimate the same
FEWEST = 8  # orders before the standard errors are believed


@dataclass(frozen=True)
class Shapley(RemovalScore):
    """Shapley value of the negative mean loss, (heads,), in the units of the loss; below 0 the head does harm.

    Heads are removed one by one in random orders (Ghorbani and Zou 2019). An order is cut short (`truncation`) once
    the loss was twice in a row within that share of the total of the loss without any head; what is left of the total
    is then spread over the heads still there, so that the values always sum to loss(no head) - loss(all heads). It
    stops after `permutations` orders, or (`precision`) when every standard error, of the draw of orders, is within
    that share of the total. Models of up to 8 heads are computed exactly (`exact` decides otherwise). A NaN under a
    mask makes its heads NaN. Raises UsageError for fewer than 2 permutations.
    """

    name = "shapley"
    title = "Shapley value"
    unit = "loss"
    text = (
        "Mean rise of the loss as the head goes, over random orders of all heads (Held & Yang 2023); "
        "higher = more important."
    )
    definition = "mean over orders of removal of the rise of the mean loss when the head goes"
    source = "Held and Yang 2023; Ghorbani and Zou 2019"
    variants = BY_ABLATION
    uses_journal = True

    permutations: int = 64
    precision: float = 0.01
    truncation: float = 0.01
    exact: bool | None = None

    def __call__(self, context: ScoreContext) -> Scores:
        if self.permutations < 2:
            raise UsageError(f"{self.permutations} orders give no standard error.", "Ask for at least 2 permutations.")
        losses = Losses(self.within(context))
        names = [tuple(head) for head in context.heads.index]
        if self.exact or (self.exact is None and len(names) <= EXACT_UP_TO):
            return Scores(
                over_all_sets(losses, names, context.steps(2 ** len(names), "sets of heads")), np.zeros(len(names))
            )
        rng = np.random.default_rng(context.seed)
        total = losses.without(names) - losses.without([])
        steps = context.steps(self.permutations, "random orders")
        found: list[np.ndarray] = []
        for _ in range(self.permutations):
            found.append(rises_in_order(losses, names, rng.permutation(len(names)), total, self.truncation))
            steps()
            if len(found) >= FEWEST and errors_over(found).max() <= self.precision * abs(total):
                break
        steps.total = len(found)
        steps(0)
        return Scores(np.mean(found, axis=0), errors_over(found))


def errors_over(orders: list[np.ndarray]) -> np.ndarray:
    """Standard errors of means over orders, (heads,)."""
    return np.std(orders, axis=0, ddof=1) / len(orders) ** 0.5


def rises_in_order(
    losses: Losses, names: list[tuple], order: np.ndarray, total: float, truncation: float
) -> np.ndarray:
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


def over_all_sets(losses: Losses, names: list[tuple], steps: Steps) -> np.ndarray:
    """The definition: every set of heads once."""
    n = len(names)
    loss = {}
    for removed in itertools.chain.from_iterable(itertools.combinations(range(n), size) for size in range(n + 1)):
        loss[frozenset(removed)] = losses.without([names[place] for place in removed])
        steps()
    values = np.zeros(n)
    for removed, before in loss.items():
        for head in set(range(n)) - removed:
            share = math.factorial(len(removed)) * math.factorial(n - len(removed) - 1) / math.factorial(n)
            values[head] += share * (loss[removed | {head}] - before)
    return values
