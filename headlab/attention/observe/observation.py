"""One pass over texts: the head table, with statistics and labels, from running sums that do not grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized

import numpy as np
import pandas as pd
import torch

from headlab.attention.observe.evidence import SiteSums
from headlab.attention.observe.passes import BatchPass
from headlab.attention.observe.readers import LabelPlan
from headlab.attention.observe.statistics import ROW_STATISTICS, STATISTICS
from headlab.attention.reach.sites import Site
from headlab.attention.subject import Subject
from headlab.base.errors import DataError, UnsupportedModelError, unknown_name
from headlab.base.progress import Progress
from headlab.labels import Label, load_label
from headlab.labels.evidence import Evidence, confirmed, joined, label_columns, without_company
from headlab.labels.inputs.context import InputContext
from headlab.models.texts.batch import Batch


class Observation:
    """Running sums of every layer of a model over the batches shown so far."""

    def __init__(self, subject: Subject, labels: Sequence[Label], *, seed: int = 0) -> None:
        self.subject = subject
        self.labels = list(labels)
        self.seed = seed
        self.plan = LabelPlan.of(self.labels)
        self.sums = {site.key: SiteSums(site, self.labels, self.plan) for site in subject.sites}
        self.frequencies: torch.Tensor | None = None  # of token ids in all texts
        self.n_texts = 0
        self.n_tokens = 0

    def add(self, batch: Batch) -> None:
        """Run one batch through the model and add it to the sums; the model is left as it was found."""
        examples = batch.examples or tuple(range(self.n_texts, self.n_texts + len(batch)))
        BatchPass(
            self.subject, batch, self.plan, self.sums, examples, seed=self.seed, frequencies=self.frequencies
        ).run()
        self.n_texts += len(batch)
        self.n_tokens += int(batch.source.valid.sum())

    def statistics_table(self) -> pd.DataFrame:
        """Statistics so far, indexed by (kind, layer, head)."""
        table = pd.concat([self._layer_table(site) for site in self.subject.sites], ignore_index=True)
        return table.set_index(["kind", "layer", "head"])

    def label_table(self) -> pd.DataFrame:
        """The columns of the labels so far, rows as in statistics_table."""
        parts = []
        for label in self.labels:
            by_layer = [self.sums[site.key].evidence(label) for site in self.subject.sites]
            # All heads together: the adjusted p is adjusted over every head of the model.
            evidence = Evidence(*(np.concatenate(arrays, -1) for arrays in zip(*(e for e, _ in by_layer), strict=True)))
            extras = pd.concat([pd.DataFrame(extra) for _, extra in by_layer], ignore_index=True)
            columns = pd.concat([label_columns(label, evidence), extras.add_prefix(f"{label.name}_")], axis=1)
            parts.append(confirmed(columns, label) if label.statistic == "word_pairs" else columns)
        return pd.concat(parts, axis=1) if parts else pd.DataFrame()

    def _layer_table(self, site: Site) -> pd.DataFrame:
        sums = self.sums[site.key]
        means = sums.rows.mean()
        norms = sums.norms.mean()
        columns: dict[str, object] = {
            "kind": site.kind,
            "layer": site.layer,
            "head": np.arange(site.n_heads),
            "kv_group": np.arange(site.n_heads) // (site.n_heads // site.n_kv_heads),
            "n_queries": int(sums.rows.count[0]),
        }
        for which, suffix in enumerate(("", "_words")):
            for name in STATISTICS:
                values = norms[:, which] if name == "output_norm" else means[:, 2 * ROW_STATISTICS.index(name) + which]
                columns[name + suffix] = values
        return pd.DataFrame(columns)


def with_labels(table: pd.DataFrame, observations: Sequence[Observation]) -> pd.DataFrame:
    """A table of statistics with the label columns of the observations of the same heads, and `labels`."""
    labels = [label for observation in observations for label in observation.labels]
    if not labels:
        return table
    parts = [observation.label_table().set_axis(table.index) for observation in observations if observation.labels]
    table = without_company(pd.concat([table, *parts], axis=1), labels)
    return pd.concat([table, joined(table, [label.name for label in labels]).rename("labels")], axis=1)


def observe(
    subject: Subject,
    batches: Iterable[Batch],
    labels: Sequence[str | Label] = (),
    statistics: Sequence[str] | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """The head table of all batches, then of each input that labels bring along, in the order of `subject.index`.

    Raises UsageError for unknown labels or statistics (all without `statistics`), DataError where there is no text,
    UnsupportedModelError where no attention is seen and for labels whose texts cannot be made for the model.
    """
    for name in statistics or ():
        if name not in STATISTICS:
            raise unknown_name("statistic", name, STATISTICS)
    if not any(site.seen for site in subject.sites):
        subject.need_sight()
    table = _observed(subject, batches, list(dict.fromkeys(map(load_label, labels))), seed, progress)
    dropped = set(STATISTICS) - set(STATISTICS if statistics is None else statistics)
    return table.reindex(subject.index).drop(columns=[name + suffix for name in dropped for suffix in ("", "_words")])


def _observed(
    subject: Subject, batches: Iterable[Batch], labels: list[Label], seed: int, progress: Progress | None
) -> pd.DataFrame:
    shown = Observation(subject, [label for label in labels if label.input is None], seed=seed)
    if any(label.frequencies for label in labels):
        batches = list(batches)
        shown.frequencies = _frequencies(batches)
    total = len(batches) if isinstance(batches, Sized) else None
    for done, batch in enumerate(batches, 1):
        shown.add(batch.to(subject.device))
        if progress is not None:
            progress(done, total)
    if shown.n_texts == 0:
        raise DataError("There is no text to observe.", "Give at least one text of two tokens.")
    bringing = [label for label in labels if label.input is not None]
    if bringing and getattr(subject.module, "config", None) is None:
        raise UnsupportedModelError(
            f"The label {bringing[0].name} brings its own texts, and {type(subject.module).__name__} has no config "
            "that says which tokens it takes.",
            "Leave the label out.",
        )
    brought = []
    for source in dict.fromkeys(label.input for label in labels if label.input is not None):
        observation = Observation(subject, [label for label in bringing if label.input == source], seed=seed)
        for batch in source.batches(input_context(subject, seed)):
            observation.add(batch.to(subject.device))
        brought.append(observation)
    return with_labels(shown.statistics_table(), [shown, *brought])


def input_context(subject: Subject, seed: int = 0) -> InputContext:
    """The model as inputs of labels see it."""
    return InputContext(subject.module, subject.checkpoint, subject.causal, seed)


def _frequencies(batches: Sequence[Batch]) -> torch.Tensor:
    """How often each token id stands in all texts, (vocabulary,)."""
    size = max((int(side.ids.max()) for batch in batches for side in batch.sides), default=-1) + 1
    counts = torch.zeros(size, dtype=torch.long)
    for batch in batches:
        for side in batch.sides:
            counts += torch.bincount(side.ids[side.valid].cpu(), minlength=size)
    return counts
