"""Tables of the experiments on translation: what a drop of BLEU affords, and which labels survive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from scipy import stats

from headlab.metrics import metric
from headlab.pruning.significance import adjusted, paired_bootstrap, paired_p
from headlab.runs.evaluations import read_evaluation

DROPS = (0.25, 1.0)  # BLEU
PLACE = ["kind", "layer", "head"]


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
                found[name] = int(max([0, *one.loc[fits.cummin(), "n_removed"]]))
            rows.append(
                {
                    "strategy": strategy,
                    "seed": seed,
                    "kinds": kinds,
                    "drop": drop,
                    "n_heads": one["n_heads"].iloc[0],
                    **found,
                }
            )
    return pd.DataFrame(rows)


def with_p(table: pd.DataFrame, masks: Path, whole: str) -> pd.DataFrame:
    """Columns `p`, of "without the head nothing changes", and `q`, adjusted over the heads (Benjamini-Hochberg).

    `whole` is the key of the full model's evaluation, the column `run` has those of the masks. Only for metrics that
    have a test of their own: the means, and BLEU.
    """
    baseline = read_evaluation(masks, whole)
    parts = []
    for name, part in table.groupby("metric", sort=False):
        p = []
        for key in part["run"]:
            found = read_evaluation(masks, key)
            tested = name in ("bleu", "nll") and baseline is not None and found is not None
            p.append(paired_p(baseline.examples, found.examples, metric(str(name))) if tested else float("nan"))
        parts.append(part.assign(p=p, q=adjusted(pd.Series(p, dtype=float).to_numpy())))
    return pd.concat(parts)


def survival(labels: pd.DataFrame, survives: pd.Series, least: int = 2) -> pd.DataFrame:
    """Fisher's exact test, two-sided, of every label against survival; all indexed by head.

    `labels` has one column of truths each. Labels that fewer than `least` heads have, or lack, are not tested.
    """
    rows = []
    stays = survives.to_numpy(dtype=bool)
    for label in labels:
        has = labels.loc[survives.index, label].to_numpy(dtype=bool)
        if min(has.sum(), (~has).sum()) < least:
            continue
        table = [
            [int((has & stays).sum()), int((has & ~stays).sum())],
            [int((~has & stays).sum()), int((~has & ~stays).sum())],
        ]
        odds, p = stats.fisher_exact(table)
        counts = {"n": int(has.sum()), "stay": table[0][0], "others": int((~has).sum()), "others_stay": table[1][0]}
        rows.append({"test": "Fisher", "label": label, **counts, "effect": float(odds), "p": float(p)})
    return pd.DataFrame(rows)


def separation(scores: pd.DataFrame, survives: pd.Series) -> pd.DataFrame:
    """Mann-Whitney test, two-sided, of every column between heads that survive and heads that go.

    `effect` is the probability that a head that stays has the higher value (ties count half).
    """
    rows = []
    stays = survives.to_numpy(dtype=bool)
    for column in scores:
        values = scores.loc[survives.index, column].to_numpy(dtype=float)
        found = stats.mannwhitneyu(values[stays], values[~stays])
        rows.append(
            {
                "test": "Mann-Whitney",
                "label": column,
                "n": len(values),
                "stay": int(stays.sum()),
                "effect": float(found.statistic) / (int(stays.sum()) * int((~stays).sum())),
                "p": float(found.pvalue),
            }
        )
    return pd.DataFrame(rows)


def fragility(table: pd.DataFrame, masks: Path, kind: str = "cross") -> pd.DataFrame:
    """How much more BLEU falls where heads of `kind` go than where as large a share of another kind does.

    One row per strategy, seed, budget and other kind: the difference of the drops and its paired bootstrap interval;
    above 0 means that `kind` is the more fragile.
    """
    bleu = table[(table["metric"] == "bleu") & (table["n_removed"] > 0)]
    kinds = [other for other in dict.fromkeys(bleu["kinds"]) if other != kind and "+" not in other]
    rows = []
    for (strategy, seed, budget), part in bleu.groupby(["strategy", "seed", "budget"], sort=False):
        runs = part.set_index("kinds")["run"]
        for other in kinds:
            both = [read_evaluation(masks, runs[name]) for name in (other, kind) if name in runs]
            if len(both) == 2 and all(both):
                found = paired_bootstrap(both[0].examples, [both[1].examples], [metric("bleu")]).iloc[0]
                rows.append(
                    {
                        "strategy": strategy,
                        "seed": seed,
                        "budget": budget,
                        "kind": kind,
                        "other": other,
                        **found[["drop", "ci_low", "ci_high"]],
                    }
                )
    return pd.DataFrame(rows)


def interval(table: pd.DataFrame, prefix: str = "", digits: int = 2) -> pd.Series:
    """`drop (low to high)` of every row."""
    columns = zip(*(table[f"{prefix}{name}"] for name in ("drop", "ci_low", "ci_high")), strict=True)
    texts = [f"{drop:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})" for drop, low, high in columns]
    return pd.Series(texts, index=table.index, dtype=object)
