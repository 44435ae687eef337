"""Pruning curve: a metric against the share of heads removed, with the band of random orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from headlab.report.colours import COLOURS, GREY, MORE_COLOURS
from headlab.report.facts import best, bounds, define, lower_is_better
from headlab.report.figures.metric_rows import metric_rows
from headlab.report.figures.style import ONE_COLUMN, TWO_COLUMNS, figure_of, new_figure, styled

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_COLOURS = (*COLOURS[:5], *MORE_COLOURS)
_KNOWN = {"gradient": 0, "ablation": 1}  # keep their colour from figure to figure
_SETTINGS = ("ablation", "kinds", "split")
CONTROLS = ("random", "matched:")
MOST_INSIDE = 4  # lines beside which the legend finds room within the axes
MANY_ORDERS = 20  # from here on, the band is the middle 95 % and not the range


@styled
def pruning_curve(sweep: pd.DataFrame, metric: str | None = None, *, ax: Axes | None = None) -> Figure:
    """Draw a metric (the first one without `metric`) against the per cent of heads removed.

    Each order is a line whose bars are the 95 % interval of its drop, moved to the metric's scale. Random orders are
    a mean with a band: their range, or the middle 95 % of 20 orders and more. The dashed line is the model with all
    heads. A metric that grows more than twenty-fold is drawn on a logarithmic scale; infinite values are left out.
    Raises UsageError for a metric that the sweep lacks.
    """
    metric, rows = metric_rows(sweep, metric)
    rows = rows.assign(value=rows["value"].where(np.isfinite(rows["value"])))
    lines = list(groups(rows))
    beside = ax is None and len(lines) > MOST_INSIDE  # else the legend would cover the lines
    axes = new_figure(TWO_COLUMNS if beside else ONE_COLUMN, 2.6).subplots() if ax is None else ax
    baselines = rows["baseline"].dropna().unique()
    for baseline in baselines:
        axes.axhline(
            baseline,
            color="black",
            linewidth=0.8,
            linestyle=(0, (4, 3)),
            gid="baseline",
            label="all heads" if baseline == baselines[0] else None,
        )
    for i, (name, strategy, group) in enumerate(lines):
        if strategy == "random":
            _draw_random(axes, name, group)
        else:
            _draw_order(axes, name, group, _KNOWN.get(strategy, i + 2))
    _finish(axes, metric, rows)
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)} if beside else {"loc": "best"}
    axes.legend(frameon=False, handlelength=1.8, labelspacing=0.3, **place)
    return figure_of(axes)


def groups(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(label, strategy, rows) of every line; settings that vary within the figure are part of the label."""
    varying = [column for column in _SETTINGS if rows[column].nunique(dropna=False) > 1]
    rows = rows.assign(strategy=rows["strategy"].astype(str))
    order = list(dict.fromkeys(rows["strategy"]))
    for strategy in [s for s in order if s == "random"] + [s for s in order if s != "random"]:
        own = rows[rows["strategy"] == strategy]
        for settings, group in own.groupby(varying, dropna=False, sort=False) if varying else [((), own)]:
            name = ", ".join([strategy, *(str(setting) for setting in settings)])
            yield name, strategy, group


def share_removed(rows: pd.DataFrame) -> pd.Series:
    """Per cent of the heads that a cut removes."""
    return 100 * rows["n_removed"] / rows["n_heads"]


def random_band(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean, low and high over random orders, indexed by per cent removed: their range, or the middle 95 % of many."""
    grouped = rows["value"].groupby(share_removed(rows))
    many = rows["seed"].nunique() >= MANY_ORDERS
    low, high = (grouped.quantile(0.025), grouped.quantile(0.975)) if many else (grouped.min(), grouped.max())
    return pd.DataFrame({"mean": grouped.mean(), "low": low, "high": high})


def _draw_random(axes: Axes, name: str, rows: pd.DataFrame) -> None:
    band = random_band(rows).dropna()
    n_orders = rows["seed"].nunique()
    what = "middle 95 %" if n_orders >= MANY_ORDERS else "range"
    label = f"{name} ({n_orders} orders: mean, {what})" if n_orders > 1 else f"{name} (one order)"
    axes.plot(band.index, band["mean"], color=GREY, linewidth=1.2, label=label, gid=name)
    axes.fill_between(band.index, band["low"], band["high"], color=GREY, alpha=0.25, linewidth=0, gid=f"{name} band")


def _draw_order(axes: Axes, name: str, rows: pd.DataFrame, i: int) -> None:
    if is_control(rows):
        rows = random_band(rows).rename_axis("share").reset_index().assign(value=lambda band: band["mean"])
        low, high, name = rows["low"], rows["high"], f"{name} (mean, range)"
    else:
        rows = rows.assign(share=share_removed(rows)).groupby("share", as_index=False).first().dropna(subset="value")
        low, high = value_interval(rows)
    lengths = np.clip(np.nan_to_num(np.stack([rows["value"] - low, high - rows["value"]])), 0, None)
    colour, marker = _COLOURS[i % len(_COLOURS)], MARKERS[i % len(MARKERS)]
    axes.errorbar(
        rows["share"],
        rows["value"],
        yerr=lengths,
        color=colour,
        linewidth=1.4,
        marker=marker,
        markersize=3.5,
        elinewidth=0.8,
        capsize=1.8,
        label=name,
    )


def is_control(rows: pd.DataFrame) -> bool:
    """Whether the rows are of several random orders, which a line is the mean of."""
    return str(rows["strategy"].iloc[0]).startswith(CONTROLS) and rows["seed"].nunique() > 1


def value_interval(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The interval of `drop` on the metric's own scale, whichever direction is better, cut at values it cannot leave.

    The interval is that of a difference, hung on the baseline: unlike the metric it can reach above 1.
    """
    together = ((rows["value"] - rows["baseline"]) * rows["drop"]).sum()
    metric = str(rows["metric"].iloc[0]) if len(rows) else ""
    least, most = bounds(metric) or (-np.inf, np.inf)
    rises = together > 0 or (together == 0 and lower_is_better(metric))
    if rises:  # the value goes up where it gets worse
        low, high = rows["baseline"] + rows["ci_low"], rows["baseline"] + rows["ci_high"]
    else:
        low, high = rows["baseline"] - rows["ci_high"], rows["baseline"] - rows["ci_low"]
    return low.clip(least, most), high.clip(least, most)


def bound_axis(axes: Axes, metric: str) -> None:
    """Keep the axis of a bounded metric within what it can reach."""
    if (limits := bounds(metric)) is not None:
        least, most = limits
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, least), min(high, most))
        for artist in axes.lines:
            artist.set_clip_on(False)  # a marker on the bound is drawn whole


def _finish(axes: Axes, metric: str, rows: pd.DataFrame) -> None:
    heads = " or ".join(str(n) for n in sorted(rows["n_heads"].unique()))
    axes.set_xlabel(f"heads removed (% of {heads})")
    axes.set_ylabel(f"{define(metric).axis}\n{best(metric)}".rstrip())
    values = pd.concat([rows["value"], rows["baseline"]]).dropna()
    if bounds(metric) is None and len(values) and values.min() > 0 and values.max() > 20 * values.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    bound_axis(axes, metric)
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
