"""Several runs side by side: heads joined on (kind, layer, head), rank correlations and changed labels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from headlab.base.masks import head_names
from headlab.runs.columns import STATISTICS
from headlab.runs.stored_run import Run
from headlab.runs.tables import label_columns, score_columns

FEWEST = 3  # heads below which a rank correlation says nothing


@dataclass(frozen=True)
class Pair:
    """Two runs and the heads that both have: correlations by column, and the heads whose labels differ."""

    left: Run
    right: Run
    n_shared: int
    correlations: pd.DataFrame  # column, rho, p, n
    label_changes: pd.DataFrame  # head, left, right
    labels: tuple[str, ...] = ()  # decided in both runs, for some head

    @property
    def same_model(self) -> bool:
        """Whether both runs name one model; heads of unlike models share no more than their place."""
        return bool(self.left.model) and self.left.model == self.right.model


def compare_runs(runs: Sequence[Run]) -> list[Pair]:
    """Every pair of runs that share heads."""
    with_heads = [run for run in runs if run.heads is not None and len(run.heads)]
    pairs = (_pair(left, right) for left, right in itertools.combinations(with_heads, 2))
    return [pair for pair in pairs if pair.n_shared]


def _pair(left: Run, right: Run) -> Pair:
    assert left.heads is not None and right.heads is not None
    shared = left.heads.index.intersection(right.heads.index, sort=False)
    ours, theirs = left.heads.loc[shared], right.heads.loc[shared]
    return Pair(
        left,
        right,
        len(shared),
        correlations(ours, theirs),
        label_changes(ours, theirs),
        tuple(shared_labels(ours, theirs)),
    )


def correlations(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rank correlation of each statistic and score that both tables have, over the heads of both.

    Heads without a value in either are left out; a column with fewer than three heads or with one value only has
    none. Columns: column, rho, p, n.
    """
    known = [*score_columns(left), *STATISTICS]
    rows = []
    for column in (c for c in known if c in left.columns and c in right.columns):
        rows.append((column, *rank_correlation(left[column], right[column])))
    return pd.DataFrame(rows, columns=["column", "rho", "p", "n"])


def rank_correlation(left: pd.Series, right: pd.Series) -> tuple[float, float, int]:
    """Spearman's rho, its p value and the number of heads it is over; NaN where it is not defined."""
    both = pd.concat(
        [left.astype("Float64").astype(float), right.astype("Float64").astype(float)], axis=1, join="inner"
    )
    both = both[np.isfinite(both).all(axis=1)]
    values = both.to_numpy().T
    if len(both) < FEWEST or any(len(np.unique(side)) < 2 for side in values):
        return float("nan"), float("nan"), len(both)
    found = stats.spearmanr(*values)
    return float(found.statistic), float(found.pvalue), len(both)


def score_agreement(heads: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation of every two scores within one run: columns left, right, rho, p, n."""
    rows = [(a, b, *rank_correlation(heads[a], heads[b])) for a, b in itertools.combinations(score_columns(heads), 2)]
    return pd.DataFrame(rows, columns=["left", "right", "rho", "p", "n"])


def shared_labels(left: pd.DataFrame, right: pd.DataFrame) -> list[str]:
    """The labels that both tables decide for some head: one that was not computed, or is undefined, says nothing."""
    both = [name for name in label_columns(left) if name in label_columns(right)]
    return [name for name in both if (left[name].notna().to_numpy() & right[name].notna().to_numpy()).any()]


def label_changes(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """The heads whose labels differ between two tables of the same heads: columns head, left, right.

    Labels count where both tables decide them for the head.
    """
    rows = []
    labels = shared_labels(left, right)
    for name, (_, ours), (_, theirs) in zip(head_names(left.index), left.iterrows(), right.iterrows(), strict=True):
        decided = [label for label in labels if not pd.isna(ours[label]) and not pd.isna(theirs[label])]
        before, after = ([label for label in decided if bool(side[label])] for side in (ours, theirs))
        if before != after:
            rows.append((name, _listed(before), _listed(after)))
    return pd.DataFrame(rows, columns=["head", "left", "right"])


def _listed(labels: Sequence[str]) -> str:
    return ", ".join(sorted(labels)) or "none"
