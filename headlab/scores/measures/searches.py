"""The most important heads without measuring every head on every example: a screen by gradients, and a race.

Both end in heads that are confirmed: measured on all examples, exactly as `ablation` does. The others keep an estimate,
and their standard error is NaN, which tells them apart.
"""

from __future__ import annotations

import numpy as np

from headlab.base.errors import DataError, UsageError
from headlab.scores.measures.gradients import gate_gradients
from headlab.scores.measures.leave_one_out import LeftOut, rises_on, rises_on_all
from headlab.scores.measures.means import mean_and_error
from headlab.scores.score import Scores

WANTED = 20  # heads to be found, at the top (largest rise) or at the bottom (smallest)
ENDS = ("top", "bottom")
BLOCK = 10  # heads that a screen confirms at a time
ERROR_RATE = 0.05  # of a whole race: that a head which belongs among the wanted ones was left behind
FIRST_ROUND = 1 / 8  # of the examples; each round doubles them
FEWEST = 32  # examples of a race: the first round must leave a variance to estimate


def check_search(end: str, wanted: int, n_heads: int) -> None:
    """Raise UsageError for what no search can find."""
    if end not in ENDS:
        raise UsageError(f"A search for the {end!r} heads is not known.", "Write top or bottom.")
    if not 1 <= wanted <= n_heads:
        raise UsageError(f"{wanted} heads cannot be searched for among {n_heads}.", f"Give 1 to {n_heads}.")


def require_enough_to_race(n: int) -> None:
    """Raise DataError for too few examples."""
    if n < FEWEST:
        raise DataError(
            f"A race needs at least {FEWEST} examples, and the split has {n}.",
            "Give more data or a larger split, or leave out --race.",
        )


def first_order(left_out: LeftOut) -> tuple[np.ndarray, np.ndarray]:
    """-d loss / d gate, the rise that a straight line predicts, (heads, examples), and the examples' ids."""
    ids: list[int] = []
    rows = []
    for batch in left_out.context.batches():
        ids += batch.example_ids
        rows.append(-gate_gradients(left_out.context, batch).T)
    return np.concatenate(rows, axis=1), np.array(ids)


def screen(left_out: LeftOut, end: str = "top", wanted: int = WANTED) -> Scores:
    """Rises (heads,) and their standard errors: exact for every head that may be among the wanted by its gradient.

    Heads are confirmed from the largest predicted rise down, until the next one could not reach the wanted ones even
    if its rise exceeded the prediction by as much as any of the last 2 blocks did. That is a rule of thumb, not a
    bound: a head whose gradient tells nothing of it (a saturated one) is missed. Of a race the error rate is known.
    """
    sign = 1.0 if end == "top" else -1.0
    predicted = sign * first_order(left_out)[0].mean(axis=1)
    order = [int(place) for place in np.argsort(-predicted, kind="stable")]
    exact = np.full(len(order), np.nan)
    errors = np.full(len(order), np.nan)
    start, step = 0, min(len(order), wanted + BLOCK)
    heads, n_batches = list(left_out.context.heads.index), sum(1 for _ in left_out.context.batches())
    steps = left_out.context.steps(len(order) * n_batches, "gradients first, then one head left out at a time")
    while start < len(order):
        block = order[start : start + step]
        rises = sign * rises_on_all(left_out, [heads[place] for place in block], steps)
        exact[block], errors[block] = mean_and_error(rises)
        start, step = start + len(block), BLOCK
        recent = order[max(0, start - 2 * BLOCK) : start]
        margin = float(np.nanmax(exact[recent] - predicted[recent]))
        bar = np.sort(exact[np.isfinite(exact)])[-wanted] if np.isfinite(exact).sum() >= wanted else -np.inf
        if start < len(order) and predicted[order[start]] + max(margin, 0.0) < bar:
            break
    steps(steps.total)
    return Scores(sign * np.where(np.isnan(errors) & np.isnan(exact), predicted, exact), errors)


def race(left_out: LeftOut, end: str = "top", wanted: int = WANTED) -> Scores:
    """Rises (heads,) and their standard errors: exact for the heads that were in the race to its end.

    All heads are measured on a random eighth of the examples, then on as many again, and so on. After each round a
    head leaves when its interval lies wholly beyond those of `wanted` others. The intervals are Student's for means of
    a sample without replacement, with the gradient's prediction (known for all examples) as control variate, at a
    level that leaves 5 % for the whole race (Bonferroni over heads and rounds). Raises DataError below 32 examples.
    """
    sign = 1.0 if end == "top" else -1.0
    predicted, ids = first_order(left_out)
    n = len(ids)
    require_enough_to_race(n)
    drawn = np.random.default_rng(left_out.context.seed).permutation(n)
    bounds = [0, *rounds(n)]
    heads = list(left_out.context.heads.index)
    rises = np.full((len(heads), n), np.nan)
    values, alive = sign * predicted.mean(axis=1), np.arange(len(heads))
    steps = left_out.context.steps(n * len(heads), "a race of heads")
    for start, stop in zip(bounds, bounds[1:], strict=False):
        new = drawn[start:stop]
        rises[np.ix_(alive, new)] = sign * rises_on(left_out, ids[new], [heads[a] for a in alive])
        steps(len(heads) * len(new))
        if stop == n:
            break
        seen = drawn[:stop]
        level = ERROR_RATE / (len(heads) * (len(bounds) - 2))
        middle, half = interval(rises[np.ix_(alive, seen)], sign * predicted[alive], seen, level)
        values[alive] = middle
        lower = np.sort(np.where(np.isnan(middle), -np.inf, middle - half))[::-1]
        bar = lower[wanted - 1] if len(lower) >= wanted else -np.inf
        alive = alive[~(middle + half < bar)]
    errors = np.full(len(heads), np.nan)
    values[alive], errors[alive] = mean_and_error(rises[alive])
    return Scores(sign * values, errors)


def rounds(n: int) -> list[int]:
    """How many examples have been seen at the end of each round: an eighth, a quarter, a half, all."""
    ends, size = [], max(int(n * FIRST_ROUND), 4)
    while size < n:
        ends.append(size)
        size *= 2
    return [*ends, n]


def interval(rises: np.ndarray, predicted: np.ndarray, seen: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Regression estimate of each head's mean over all examples and its half width, from the examples seen.

    `rises` is (heads, seen); `predicted` (heads, all examples) is known everywhere.
    """
    from scipy.stats import t as student

    n, whole = len(seen), predicted.shape[1]
    x = predicted[:, seen]
    x_mean, y_mean = x.mean(axis=1), rises.mean(axis=1)
    spread = ((x - x_mean[:, None]) ** 2).sum(axis=1)
    product = ((x - x_mean[:, None]) * (rises - y_mean[:, None])).sum(axis=1)
    slope = np.divide(product, spread, out=np.zeros_like(product), where=spread > 0)
    middle = y_mean + slope * (predicted.mean(axis=1) - x_mean)
    left = rises - y_mean[:, None] - slope[:, None] * (x - x_mean[:, None])
    variance = (left**2).sum(axis=1) / (n - 2) / n * (1 - n / whole)
    return middle, student.ppf(1 - level / 2, n - 2) * np.sqrt(variance)
