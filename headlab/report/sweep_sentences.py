"""What removing heads costs, in plain sentences: every claim follows from its interval."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from headlab.report.facts import define, lower_is_better

FEW = 30  # examples below which a bootstrap interval is often too narrow


def about_sweep(sweep: pd.DataFrame) -> Iterator[str]:
    """Sentences on every metric and setting of a sweep: the baseline, and the first cut of each order that costs."""
    settings = ["metric", "kinds", "ablation", "split"]
    for (metric, kinds, ablation, split), rows in sweep.groupby(settings, sort=False, dropna=False):
        if (rows[["baseline", "value"]] == 0).all(axis=None):
            continue  # counts of what never happened, such as empty outputs
        baseline, n = rows["baseline"].iloc[0], rows["n_examples"].iloc[0]
        where = f" of {kinds} attention" if sweep["kinds"].nunique() > 1 else ""
        yield (
            f"With all heads, {define(str(metric)).title} is {number(baseline)} on the {_examples(n)} of the "
            f"{split} split; removed heads{where} are replaced by {_replacement(str(ablation))}."
        )
        for strategy in dict.fromkeys(rows["strategy"]):
            if strategy != "random":
                yield _about_order(str(metric), str(strategy), rows)
    for split, rows in sweep.groupby("split", sort=False, dropna=False):
        yield from small_sample(int(rows["n_examples"].min()), "example", f"the intervals on the {split} split")


def small_sample(n: int, noun: str, what: str) -> Iterator[str]:
    """A warning where intervals come from fewer than 30 examples."""
    if n < FEW:
        yield (
            f"Caution: {what} come from only {n} {noun}{'s' if n != 1 else ''}; with fewer than {FEW} they are "
            "rough, often too narrow, and may mislead."
        )


def basis(n: int, noun: str) -> str:
    """`24 examples (fewer than 30: intervals are rough)`, for a caption."""
    counted = f"{n} {noun}{'s' if n != 1 else ''}"
    return f"{counted} (fewer than {FEW}: intervals are rough)" if n < FEW else counted


def _examples(n: int) -> str:
    return f"{n} example{'s' if n != 1 else ''}"


def _replacement(ablation: str) -> str:
    return {"zero": "zero", "mean": "their mean output"}.get(ablation, ablation)


def _about_order(metric: str, strategy: str, rows: pd.DataFrame) -> str:
    """The first cut with a clear loss, and the same cut in random order; cuts that clearly improve are counted."""
    title = define(metric).title
    own = rows[(rows["strategy"] == strategy) & (rows["n_removed"] > 0)].sort_values("n_removed")
    if own.empty:
        return f"In the {strategy} order nothing was removed."
    worse = own[own["ci_low"] > 0]
    if len(worse):
        first = worse.iloc[0]
        return (
            f"In the {strategy} order the smallest tested cut that clearly worsens {title} is {_cut(first)}: "
            f"{_change(first)}{_compared(rows, first)}.{_improving(own, title)}"
        )
    last = own.iloc[-1]
    if last["ci_high"] < 0:
        return (
            f"In the {strategy} order the largest tested cut, {_cut(last)}, clearly improves {title}: "
            f"{_change(last)}{_compared(rows, last)}. No tested cut clearly worsens it."
        )
    reach = (own["ci_low"] <= 0) & (own["ci_high"] >= 0)
    known = " (every 95 % interval of the drop reaches 0)" if reach.all() else ""
    return (
        f"In the {strategy} order no tested cut, up to {_cut(last)}, clearly worsens {title}{known}; "
        f"{_change(last)} at the last one{_compared(rows, last)}.{_improving(own, title)}"
    )


def _improving(own: pd.DataFrame, title: str) -> str:
    better = own[own["ci_high"] < 0]
    n = len(own)
    if better.empty:
        return ""
    which = f"{_cut(better.iloc[0])} does" if len(better) == 1 else f"{len(better)} of the {n} tested cuts do"
    return f" Some cuts clearly improve {title}: {which} (whole interval on the better side)."


def _cut(row: pd.Series) -> str:
    return f"{row['n_removed']} of {row['n_heads']} heads ({100 * row['n_removed'] / row['n_heads']:.0f} %)"


def _change(row: pd.Series) -> str:
    """How the metric itself moves: `a fall of 0.664 [0.019, 1.399]`, never a rise of a negative amount."""
    drop, low, high = (float(row[name]) for name in ("drop", "ci_low", "ci_high"))
    if drop == 0:
        return f"no change [{number(low)}, {number(high)}]"
    lower = lower_is_better(str(row["metric"]))
    if drop < 0:  # the metric got better: the ends change sign and places (0.0 - 0.0 is no -0.0)
        way, ends = "a fall" if lower else "a rise", f"[{number(0.0 - high)}, {number(0.0 - low)}]"
        return f"{way} of {number(-drop)} {ends}, for the better"
    return f"{'a rise' if lower else 'a drop'} of {number(drop)} [{number(low)}, {number(high)}]"


def _compared(rows: pd.DataFrame, like: pd.Series) -> str:
    """The same cut in random order: the metric's own values, so that no sign has to be worked out."""
    same = rows[(rows["strategy"] == "random") & (rows["n_removed"] == like["n_removed"])]
    values = same["drop"][np.isfinite(same["drop"])]
    if values.empty:
        return ""
    orders = f"{len(values)} random orders" if len(values) > 1 else "one random order"
    mean = float(values.mean())
    if mean < 0 or values.min() < 0 or float(like["drop"]) < 0:
        reached = same.loc[values.index, "value"]
        spread = f" ({number(reached.min())} to {number(reached.max())})" if len(values) > 1 else ""
        return (
            f", reaching {number(float(like['value']))}, against a mean of {number(float(reached.mean()))}{spread} "
            f"in {orders}"
        )
    spread = f" ({number(values.min())} to {number(values.max())})" if len(values) > 1 else ""
    return f", against {number(mean)}{spread} in {orders}"


def number(value: object) -> str:
    """A number as people read it: three significant digits, whole numbers as they are, a dash for none."""
    if value is None or pd.isna(value):  # type: ignore[call-overload]
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        size = abs(float(value))
        if size >= 1e6 or 0 < size < 5e-4:
            return f"{value:.2e}" if np.isfinite(size) else str(float(value))
        return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.3f}"
    return str(value)
