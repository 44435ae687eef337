"""One pass over texts: the head table, with statistics and labels, from running sums that do not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from headlab.attention.observe.evidence import SiteSums
from headlab.attention.observe.passes import BatchPass
from headlab.attention.observe.readers import LabelPlan
from headlab.attention.observe.statistics import ROW_STATISTICS, STATISTICS
from headlab.attention.reach.sites import Site
from headlab.base.errors import DataError, UnsupportedModelError
from headlab.labels import Evidence, Label, Subject, confirmed, joined, label_columns
from headlab.models.texts.batch import Batch

if TYPE_CHECKING:
    from headlab.attention.heads import Heads

Progress = Callable[[int, int | None], None]


class Observation:
    """Running sums of every layer of a model over the batches shown so far."""

    def __init__(self, heads: Heads, labels: Sequence[Label], *, seed: int = 0) -> None:
        self.heads = heads
        self.labels = list(labels)
        self.seed = seed
        self.plan = LabelPlan.of(self.labels)
        self.sums = {site.key: SiteSums(site, self.labels, self.plan) for site in heads.sites}
        self.frequencies: torch.Tensor | None = None  # of token ids in all texts
        self.n_texts = 0
        self.n_tokens = 0

    def add(self, batch: Batch) -> None:
        """Run one batch through the model and add it to the sums; the model is left as it was found."""
        BatchPass(self, batch).run()
        self.n_texts += len(batch)
        self.n_tokens += int(batch.source.valid.sum())

    def statistics_table(self) -> pd.DataFrame:
        """Statistics so far, indexed by (kind, layer, head)."""
        table = pd.concat([self._layer_table(site) for site in self.heads.sites], ignore_index=True)
        return table.set_index(["kind", "layer", "head"])

    def label_table(self) -> pd.DataFrame:
        """The columns of the labels so far, rows as in statistics_table."""
        parts = []
        for label in self.labels:
            found = [self.sums[site.key].evidence(label) for site in self.heads.sites]
            # All heads together: the adjusted p is adjusted over every head of the model.
            evidence = Evidence(*(np.concatenate(arrays, -1) for arrays in zip(*(e for e, _ in found), strict=True)))
            more = pd.concat([pd.DataFrame(extra) for _, extra in found], ignore_index=True)
            columns = pd.concat([label_columns(label, evidence), more.add_prefix(f"{label.name}_")], axis=1)
            parts.append(confirmed(columns, label) if label.statistic == "word_pairs" else columns)
        return pd.concat(parts, axis=1) if parts else pd.DataFrame()

    def _layer_table(self, site: Site) -> pd.DataFrame:
        sums = self.sums[site.key]
        means = sums.rows.mean()
        norms = sums.norms.mean()
        columns: dict[str, object] = {
            "kind": site.kind, "layer": site.layer, "head": np.arange(site.n_heads),
            "kv_group": np.arange(site.n_heads) // (site.n_heads // site.n_kv_heads),
            "n_queries": int(sums.rows.count[0]),
        }  # fmt: skip
        for which, suffix in enumerate(("", "_words")):
            for name in STATISTICS:
                values = norms[:, which] if name == "output_norm" else means[:, 2 * ROW_STATISTICS.index(name) + which]
                columns[name + suffix] = values
        return pd.DataFrame(columns)


def with_labels(table: pd.DataFrame, observations: Sequence[Observation]) -> pd.DataFrame:
    """A table of statistics with the label columns of the observations of the same heads, and `labels`."""
    names = [label.name for observation in observations for label in observation.labels]
    if not names:
        return table
    parts = [observation.label_table().set_axis(table.index) for observation in observations if observation.labels]
    table = pd.concat([table, *parts], axis=1)
    if "mixed" in names:  # its definition: what no other label of a place explains
        others = [name for name in names if name not in ("mixed", "broad")]
        carried = table[others].fillna(False).astype(bool).any(axis=1)
        table["mixed"] = table["mixed"] & ~carried
    return pd.concat([table, joined(table, names).rename("labels")], axis=1)


class Observed:
    """What was seen of a model: the texts that were given, and those that labels brought along."""

    def __init__(self, given: Observation, own: Sequence[Observation]) -> None:
        self.given, self.own = given, list(own)

    def table(self) -> pd.DataFrame:
        """The head table, indexed by (kind, layer, head)."""
        return with_labels(self.given.statistics_table(), [self.given, *self.own])


def observe(
    heads: Heads, batches: Iterable[Batch], labels: Sequence[Label], *, seed: int = 0, progress: Progress | None = None
) -> Observed:
    """Show all batches to the model, then each input that labels bring along; DataError where there is no text."""
    labels = list(dict.fromkeys(labels))
    given = Observation(heads, [label for label in labels if label.input is None], seed=seed)
    if any(label.frequencies for label in labels):
        batches = list(batches)
        given.frequencies = _frequencies(batches)
    total = len(batches) if isinstance(batches, Sized) else None
    for done, batch in enumerate(batches, 1):
        given.add(batch.to(heads.device))
        if progress is not None:
            progress(done, total)
    if given.n_texts == 0:
        raise DataError("There is no text to observe.", "Give at least one text of two tokens.")
    own = []
    if any(label.input is not None for label in labels) and getattr(heads.model, "config", None) is None:
        name = next(label.name for label in labels if label.input is not None)
        raise UnsupportedModelError(f"The label {name} brings its own texts, and {type(heads.model).__name__} has no "
                                    "config that says which tokens it takes.", "Leave the label out.")  # fmt: skip
    for brought in dict.fromkeys(label.input for label in labels if label.input is not None):
        observation = Observation(heads, [label for label in labels if label.input == brought], seed=seed)
        for batch in brought.batches(subject_of(heads, seed)):
            observation.add(batch.to(heads.device))
        own.append(observation)
    return Observed(given, own)


def subject_of(heads: Heads, seed: int = 0) -> Subject:
    """The model as inputs of labels see it."""
    causal = all(site.causal for site in heads.sites if site.kind != "cross")
    return Subject(heads.model, heads.checkpoint, causal, seed)


def _frequencies(batches: Sequence[Batch]) -> torch.Tensor:
    """How often each token id stands in all texts, (vocabulary,)."""
    size = max(int(batch.source.ids.max()) for batch in batches) + 1
    size = max(size, *(int(batch.target.ids.max()) + 1 for batch in batches if batch.target), 0)
    counts = torch.zeros(size, dtype=torch.long)
    for batch in batches:
        for side in (batch.source, batch.target):
            if side is not None:
                counts += torch.bincount(side.ids[side.valid].cpu(), minlength=size)
    return counts
