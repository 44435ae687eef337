"""A sweep for people: a row for each metric and cut, the orders side by side, random ones as mean and range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def curve_table(sweep: pd.DataFrame) -> pd.DataFrame:
    """The rows to print of a sweep's table, as text: metric, budget, removed heads, a pair of columns for each order.

    The whole model is one row of each metric, however many orders and budgets remove nothing. `drop` is how much worse
    the metric is than the whole model's, with its 95 % interval; of several seeds at one cut (learned gates, matched
    controls) both are the mean and the range. `n` is the number of examples that were judged.
    """
    import pandas as pd

    strategies = [name for name in dict.fromkeys(sweep["strategy"]) if name != "random"]
    several = (sweep["strategy"] == "random").any()
    rows = []
    for metric, of_metric in sweep.groupby("metric", sort=False):
        for n_removed, cut in of_metric.groupby("n_removed"):
            row = {"metric": metric, "budget": "0" if n_removed == 0 else cut["budget"].iloc[0], "removed": n_removed}
            for name in strategies:
                row |= _judged(name, cut[cut["strategy"] == name])
            if several:
                drawn = cut.loc[cut["strategy"] == "random", "value"]
                row["random: mean (range)"] = _spread(drawn)
            rows.append(row | {"n": cut["n_examples"].iloc[0]})
    return pd.DataFrame(rows)


def _judged(name: str, cut: pd.DataFrame) -> dict[str, str]:
    """Value and drop of one order at one cut."""
    if cut.empty:
        return {name: "-", f"{name}: drop [95 %]": "-"}
    if len(cut.drop_duplicates(["value", "drop"])) > 1:
        return {name: _spread(cut["value"]), f"{name}: drop [95 %]": _spread(cut["drop"])}
    first = cut.iloc[0]
    whole = first["n_removed"] == 0 and first["drop"] == 0  # trained without a cut it is another model
    drop = f"{_number(first['drop'])} [{_number(first['ci_low'])}, {_number(first['ci_high'])}]"
    return {name: _number(first["value"]), f"{name}: drop [95 %]": "-" if whole else drop}


def _spread(values: pd.Series) -> str:
    if values.empty:  # learned gates end at sizes that no random order was cut to
        return "-"
    if values.nunique(dropna=False) == 1:
        return _number(values.iloc[0])
    return f"{_number(values.mean())} ({_number(values.min())} to {_number(values.max())})"


def _number(value: float) -> str:
    """Three decimals, fewer digits for large numbers; the files have them all."""
    if math.isnan(value):
        return "-"
    text = f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3f}"
    return "0.000" if text == "-0.000" else text
