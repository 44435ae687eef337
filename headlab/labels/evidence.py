"""What a label is judged by: scores of all heads against chance, as columns of the head table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from headlab.labels.label import Label

ENOUGH = 10  # instances in each half, below which nothing is said


class Evidence(NamedTuple):
    """A statistic of every head and what it is measured against: (head,) arrays, and (draw, head) replicates."""

    score: np.ndarray
    chance: np.ndarray
    n: np.ndarray
    replicates: np.ndarray


def label_columns(label: Label, evidence: Evidence) -> pd.DataFrame:
    """The label's columns for all heads: nullable boolean (missing = undefined), score, chance level, threshold, n,
    95 % bootstrap interval over texts, and the Benjamini-Hochberg adjusted p of a score above chance.

    Where a uniform head is the yardstick itself (`broad`), the p is that of a score above the threshold. A score that
    must beat a baseline by a margin is tested against the baseline.
    """
    score, threshold = evidence.score, label.threshold_at(evidence.chance)
    defined = np.isfinite(score) & (evidence.n > 0)
    several = defined & _has_spread(evidence.replicates)
    low, high = np.full(len(score), np.nan), np.full(len(score), np.nan)
    if several.any():
        low[several], high[several] = np.nanquantile(evidence.replicates[:, several], [0.025, 0.975], axis=0)
    carried = pd.array(np.where(defined, score > threshold, False), dtype="boolean")
    carried[~defined] = pd.NA
    yardstick = label.published_chance is None and label.margin is None
    against = threshold if yardstick else evidence.chance
    name = label.name
    return pd.DataFrame(
        {
            name: carried,
            f"{name}_score": score,
            f"{name}_null": evidence.chance,
            f"{name}_threshold": threshold,
            f"{name}_n": evidence.n.astype("int64"),
            f"{name}_low": low,
            f"{name}_high": high,
            f"{name}_q": _adjusted_p(score, against, evidence.replicates, several),
        }
    )


def confirmed(columns: pd.DataFrame, label: Label) -> pd.DataFrame:
    """The columns of a label that is chosen on one half of the texts and judged on the other: it must hold on both.

    Undefined, not false, where either half has fewer than 10 instances.
    """
    name = label.name
    select = columns[f"{name}_select"] > columns[f"{name}_select_null"] + (label.margin or 0.0)
    few = (columns[f"{name}_n"] < ENOUGH) | (columns[f"{name}_select_n"] < ENOUGH)
    columns[name] = (columns[name] & select).mask(few, pd.NA).astype("boolean")
    return columns


def _has_spread(replicates: np.ndarray) -> np.ndarray:
    """Heads with an interval: most draws hold a text that counts (with few texts some are empty), and they differ."""
    filled = np.isfinite(replicates)
    lowest = np.where(filled, replicates, np.inf).min(0)
    highest = np.where(filled, replicates, -np.inf).max(0)
    return (filled.mean(0) >= 0.5) & (highest > lowest)


def _adjusted_p(score: np.ndarray, against: np.ndarray, replicates: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """One-sided p by the normal approximation to the bootstrap, adjusted over heads; NaN without replicates."""
    adjusted = np.full(len(score), np.nan)
    if usable.any():
        spread = np.nanstd(replicates[:, usable], axis=0, ddof=1)
        p = stats.norm.sf((score[usable] - against[usable]) / spread)
        adjusted[usable] = stats.false_discovery_control(p)
    return adjusted


def without_company(columns: pd.DataFrame, labels: Sequence[Label]) -> pd.DataFrame:
    """The columns, those labels false that a head does not carry beside others (`alone_but`) where it carries one."""
    alone = {}
    for label in labels:
        if label.alone_but is not None:
            others = [other.name for other in labels if other.name not in (label.name, *label.alone_but)]
            alone[label.name] = columns[label.name] & ~columns[others].fillna(False).astype(bool).any(axis=1)
    return columns.assign(**alone)


def joined(columns: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """The labels that each head carries, joined by commas, or `none`."""
    carried = columns[list(names)].fillna(False).astype(bool)
    return carried.apply(lambda row: ",".join(name for name in names if row[name]) or "none", axis=1)
