"""What a head does: one file per label, each a statistic, a threshold and a chance level.

A published threshold was chosen on texts of some length and some kind of attention. headlab keeps its meaning on other
texts by keeping its place between chance and certainty: with c the score of a head that looks at all visible keys
alike, and c0 that score on texts like the published ones, the threshold t0 becomes c + (1 - c) (t0 - c0) / (1 - c0).
At the published length this is the published threshold.

The chance level `<label>_null` is, for every label of a place, what permuting positions gives: the mean of the head's
own score over all orders in which its weights could lie on the keys that each query sees. It is taken exactly, not by
drawing: under permutation each visible key is as likely as any other, so the mean is that of a uniform head, whatever
the head. Labels that join words have a harder one, the best fixed offset (coreference: the nearest mention); `broad`
has uniform attention itself, as the entropy of a row stays the same in any order. `Label.null` says which. The control
of random weights is a model, not a column: headlab.models.random_weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from headlab.base.errors import UsageError
from headlab.base.registry import Registry
from headlab.labels._chance import chance_level
from headlab.labels._inputs import Input, Subject
from headlab.labels._targets import KeyClass, OneKey, Pairs, Scene, Target, gap, plain, segments

__all__ = [
    "ENOUGH", "LABELS", "Evidence", "Input", "KeyClass", "Label", "OneKey", "Pairs", "Scene", "Subject", "Target",
    "confirmed", "default_labels", "gap", "joined", "label_columns", "load_label", "load_labels", "plain", "segments",
]  # fmt: skip

LABELS: Registry[Any] = Registry("headlab.labels", "label")
ENOUGH = 10  # instances in each half, below which nothing is said


@dataclass(frozen=True)
class Label:
    """A head carries the label where its `statistic` is above `threshold`.

    `statistic` is a column of the head table; `offset_mass` or `offset_hits` for the best fixed offset; `target` for
    what the head has on `target`: as `reading`, its mean attention there ("mass"), or the share of queries whose
    largest weight is there ("argmax"), special tokens or the query itself (`exclude`) left out before; `word_pairs`
    for arg max hits between words, named `pair`, that `input` brings along; `copying` for the OV circuit.

    `published_chance` is what a uniform head scores on texts like those of the source; None where the statistic is
    already relative to it. With `margin` the threshold is the chance level plus that, and `threshold` is not read.
    `input` makes the label's own texts; None reads the given ones. `keys` is the class of keys whose share of the
    contributions (weight times length of the transformed value) is shown beside the label.
    """

    name: str
    statistic: str
    threshold: float
    published_chance: float | None
    definition: str
    source: str
    target: Target | None = None
    reading: str = "mass"
    exclude: tuple[str, ...] = ()
    input: Input | None = None
    pair: str | None = None
    beside: tuple[str, ...] = ()  # (sure, possible) pairs: the alignment error rate is shown too
    margin: float | None = None
    keys: KeyClass | None = None
    by_text: bool = False  # the share of texts on which the statistic is above the threshold is shown too
    frequencies: bool = False  # needs the token frequencies of all texts

    @property
    def null(self) -> str:
        """What `<label>_null` is, in words."""
        return chance_level(self.name, self.statistic, permuted=self.published_chance is not None)

    def threshold_at(self, chance: np.ndarray) -> np.ndarray:
        """The threshold on texts on which a uniform head scores `chance`."""
        if self.margin is not None:
            return chance + self.margin
        if self.published_chance is None:
            return np.full_like(chance, self.threshold)
        place = (self.threshold - self.published_chance) / (1 - self.published_chance)
        return chance + (1 - chance) * place


class Evidence(NamedTuple):
    """A statistic of every head and what it is measured against: (head,) arrays, and (draw, head) replicates."""

    score: np.ndarray
    chance: np.ndarray
    n: np.ndarray
    replicates: np.ndarray


def load_label(name: str | Label) -> Label:
    """The label of that name; a Label itself is returned as it is.

    Raises UsageError with the closest name and the list where there is none, and for a family of labels that needs a
    file (`syntactic`), which load_labels takes.
    """
    if isinstance(name, Label):
        return name
    module = LABELS.load(name.partition(":")[0])
    label = getattr(module, "LABEL", None)
    if label is None:
        needs = module.NEEDS
        raise UsageError(f"The label {name!r} reads a file of its own ({needs}), and none is given.",
                         f"headlab dump: --{needs} FILE; Python: load_labels([{name!r}], {needs}=FILE).")  # fmt: skip
    return label


def load_labels(names: Sequence[str | Label], **files: Any) -> list[Label]:
    """Labels by name, for Heads.observe: those that read a file of their own are given it here.

    `syntactic` (every relation, both directions), `syntactic:det` or `syntactic:det:dependent-head` with conllu=FILE,
    `coreference` with mentions=FILE, `alignment` with alignments=(source, target, gold) files. A family comes as one
    label for each of its members; a Label in `names` stays as it is; each label comes once.

    Raises UsageError for unknown names and for a label whose file is not given, DataError for files it cannot read.
    """
    found: list[Label] = []
    for name in names:
        module = None if isinstance(name, Label) else LABELS.load(name.partition(":")[0])
        needs = getattr(module, "NEEDS", None)
        if module is None or needs is None or files.get(needs) is None:
            found.append(load_label(name))
        else:
            found += module.labels(files[needs], str(name).partition(":")[2])
    return list(dict.fromkeys(found))


def default_labels() -> list[str]:
    """The labels that read any text: those without an input or a file of their own."""
    modules = ((name, LABELS.load(name)) for name in LABELS.names())
    return [name for name, module in modules if hasattr(module, "LABEL") and module.LABEL.input is None]


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
    return pd.DataFrame({
        name: carried, f"{name}_score": score, f"{name}_null": evidence.chance, f"{name}_threshold": threshold,
        f"{name}_n": evidence.n.astype("int64"), f"{name}_low": low, f"{name}_high": high,
        f"{name}_q": _adjusted_p(score, against, evidence.replicates, several),
    })  # fmt: skip


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


def joined(columns: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """The labels that each head carries, joined by commas, or `none`."""
    carried = columns[list(names)].fillna(False).astype(bool)
    return carried.apply(lambda row: ",".join(name for name in names if row[name]) or "none", axis=1)
