"""Tables of the experiments on translation: what a drop of BLEU affords, and which labels survive."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

DROPS = (0.25, 1.0)  # BLEU


def affordable(table: pd.DataFrame, drops: Sequence[float] = DROPS) -> pd.DataFrame:
    """How many heads go before BLEU falls by more than each drop, for every order.

    `removed` is the last budget before the drop is first passed; `at_least` and `at_most` are those before the upper
    and the lower end of the drop's 95 % interval pass it. A budget beyond the first failure does not count.
    """
    rows = []
    bleu = table[table["metric"] == "bleu"]
    for (strategy, seed, kinds), one in bleu.groupby(["strategy", "seed", "kinds"], sort=False):
        one = one.sort_values("n_removed")
        for drop in drops:
            found = {}
            for name, column in (("removed", "drop"), ("at_least", "ci_high"), ("at_most", "ci_low")):
                fits = (one[column] <= drop) | (one["n_removed"] == 0)
                found[name] = int(one.loc[fits.cummin(), "n_removed"].max())
            rows.append({"strategy": strategy, "seed": seed, "kinds": kinds, "drop": drop,
                         "n_heads": one["n_heads"].iloc[0], **found})  # fmt: skip
    return pd.DataFrame(rows)
