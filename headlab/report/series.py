"""The lines of a pruning curve as plain numbers, the same for a figure and for the page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headlab.report.facts import best, bounds, define
from headlab.report.figures.curve import groups, is_control, random_band, share_removed, value_interval
from headlab.report.figures.pareto import pareto_front

_POINT = ("n_removed", "n_heads", "value", "baseline", "drop", "ci_low", "ci_high", "n_examples")


def curve_series(sweep: pd.DataFrame) -> list[dict[str, Any]]:
    """One entry for each metric: its title, direction, settings and lines; points hold value, drop and interval."""
    return [_of_metric(str(metric), sweep[sweep["metric"] == metric]) for metric in dict.fromkeys(sweep["metric"])]


def _of_metric(metric: str, rows: pd.DataFrame) -> dict[str, Any]:
    meaning = define(metric)
    finite = rows.assign(value=rows["value"].where(np.isfinite(rows["value"])))
    lines = [_line(name, strategy, group) for name, strategy, group in groups(finite)]
    return {
        "metric": metric,
        "title": meaning.title,
        "unit": meaning.unit,
        "better": best(metric),
        "bounds": list(bounds(metric) or ()),
        "settings": _settings(rows),
        "lines": lines,
        "front": [_point(row) for _, row in pareto_front(finite).iterrows()],
    }


def _settings(rows: pd.DataFrame) -> str:
    """Which split and ablation the numbers are of, in one sentence."""
    splits, ablations, kinds = (_listed(rows[column]) for column in ("split", "ablation", "kinds"))
    n = _listed(rows["n_examples"])
    return f"Judged on the {splits} split ({n} examples); heads removed from {kinds}; ablation: {ablations}."


def _listed(values: pd.Series) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(values))


def _line(name: str, strategy: str, rows: pd.DataFrame) -> dict[str, Any]:
    if strategy == "random" or is_control(rows):
        band = random_band(rows)
        drops = random_band(rows.assign(value=rows["drop"]))
        counts = rows.groupby(share_removed(rows))["n_removed"].first()
        n_heads, n_orders = int(rows["n_heads"].iloc[0]), int(rows["seed"].nunique())
        points = [
            {
                "x": share,
                "n_removed": int(counts[share]),
                "n_heads": n_heads,
                "value": values["mean"],
                "low": values["low"],
                "high": values["high"],
                "drop": drops.loc[share, "mean"],
                "ci_low": drops.loc[share, "low"],
                "ci_high": drops.loc[share, "high"],
            }
            for share, values in band.iterrows()
        ]
        return {"name": name, "random": strategy == "random", "orders": n_orders, "points": points}
    rows = rows.assign(share=share_removed(rows)).groupby("share", as_index=False).first()
    low, high = value_interval(rows)
    points = [_point(row) | {"low": low[i], "high": high[i]} for i, row in rows.iterrows()]
    return {"name": name, "random": False, "points": points}


def _point(row: pd.Series) -> dict[str, Any]:
    share = 100 * row["n_removed"] / row["n_heads"]
    return {"x": share, "strategy": str(row["strategy"]), **{key: row[key] for key in _POINT}}


def training_series(training: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The head tables of one training each, with a name for it: a table may hold several models and seeds."""
    identity = [column for column in ("model", "seed") if column in training.columns]
    if not identity:
        return [("training", training)]
    found = []
    for values, rows in training.groupby(identity, sort=False, dropna=False):
        parts = [
            f"seed {value}" if name == "seed" else str(value) for name, value in zip(identity, values, strict=True)
        ]
        found.append((", ".join(parts), rows.drop(columns=identity)))
    return found
