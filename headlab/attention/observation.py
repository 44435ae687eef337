"""One pass over texts: the head table, with statistics and labels, from running sums that do not grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headlab.attention import seam
from headlab.attention.geometry import Geometry, geometry_of
from headlab.attention.proofs import site_handler
from headlab.attention.running import REPLICATES, RunningSums, poisson_weights
from headlab.attention.seam import AttentionCall
from headlab.attention.sites import Site, edits_at_projections, per_head
from headlab.attention.statistics import MAX_OFFSET, ROW_STATISTICS, STATISTICS, LayerReader, sum_rows
from headlab.attention.streaming import Reader
from headlab.errors import DataError
from headlab.labels import Evidence, Label, joined, label_columns
from headlab.models.batch import Batch, Tokens

if TYPE_CHECKING:
    from headlab.attention.heads import Heads

Progress = Callable[[int, int | None], None]


class Observation:
    """Running sums of every layer of a model over the batches shown so far."""

    def __init__(self, heads: Heads, labels: Sequence[Label], *, seed: int = 0) -> None:
        self.heads = heads
        self.labels = list(labels)
        self.seed = seed
        self.offsets = any(label.statistic == "offset_mass" for label in labels)
        read = {label.statistic for label in labels}
        replicated = [2 * i for i, name in enumerate(ROW_STATISTICS) if name in read]
        self.rows = {s.key: RunningSums(s.n_heads, 2 * len(ROW_STATISTICS), replicated) for s in heads.sites}
        self.norms = {s.key: RunningSums(s.n_heads, 2) for s in heads.sites}
        # Offsets are chosen on the texts with even ids and measured on the odd ones.
        every = range(2 * MAX_OFFSET + 1)
        self.chosen_on = {s.key: RunningSums(s.n_heads, len(every)) for s in heads.sites} if self.offsets else {}
        self.measured_on = (
            {s.key: RunningSums(s.n_heads, len(every), every) for s in heads.sites} if self.offsets else {}
        )
        self.n_texts = 0
        self.n_tokens = 0

    def add(self, batch: Batch) -> None:
        """Run one batch through the model and add it to the sums; the model is left as it was found."""
        _BatchPass(self, batch).run()
        self.n_texts += len(batch)
        self.n_tokens += int(batch.source.valid.sum())

    def table(self) -> pd.DataFrame:
        """The head table so far, indexed by (kind, layer, head)."""
        table = pd.concat([self._layer_table(site) for site in self.heads.sites], ignore_index=True)
        for label in self.labels:
            found = [self._evidence(site, label) for site in self.heads.sites]
            # All heads together: the adjusted p is adjusted over every head of the model.
            evidence = Evidence(*(np.concatenate(parts, -1) for parts in zip(*(e for _, e in found), strict=True)))
            table = pd.concat([table, label_columns(label, evidence)], axis=1)
            if label.statistic == "offset_mass":
                table[f"{label.name}_offset"] = pd.array(np.concatenate([o for o, _ in found]), dtype="Int64")
        if self.labels:
            table["labels"] = joined(table, [label.name for label in self.labels])
        return table.set_index(["kind", "layer", "head"])

    def _layer_table(self, site: Site) -> pd.DataFrame:
        sums = self.rows[site.key]
        means = sums.mean()
        norms = self.norms[site.key].mean()
        columns: dict[str, object] = {
            "kind": site.kind, "layer": site.layer, "head": np.arange(site.n_heads),
            "kv_group": np.arange(site.n_heads) // (site.n_heads // site.n_kv_heads),
            "n_queries": int(sums.count[0]),
        }  # fmt: skip
        for which, suffix in enumerate(("", "_words")):
            for name in STATISTICS:
                values = norms[:, which] if name == "output_norm" else means[:, 2 * ROW_STATISTICS.index(name) + which]
                columns[name + suffix] = values
        return pd.DataFrame(columns)

    def _evidence(self, site: Site, label: Label) -> tuple[Any, Evidence]:
        """The best offset (None for other labels) and the evidence for a label in one layer."""
        if label.statistic == "offset_mass":
            return self._offset_evidence(site)
        sums = self.rows[site.key]
        item = 2 * ROW_STATISTICS.index(label.statistic)
        ones = np.ones(site.n_heads)
        replicates = sums.replicate_means()[:, :, sums.replicated.index(item)]
        return None, Evidence(
            sums.mean()[:, item], ones * sums.chance_level()[item], ones * sums.count[item], replicates
        )

    def _offset_evidence(self, site: Site) -> tuple[Any, Evidence]:
        """The best offset above chance on one half of the texts, its mass on the other half (on the same, if one)."""
        first, second = self.chosen_on[site.key], self.measured_on[site.key]
        if not second.count.any():
            second = first
        elif not first.count.any():
            first = second
        # An offset that few queries can see says little: the only query to see offset 1 - T is the last one.
        frequent = first.count >= 0.5 * max(1, first.count[MAX_OFFSET])
        best = np.where(frequent, first.mean() - first.chance_level(), -np.inf).argmax(1)
        heads = np.arange(site.n_heads)
        offset = pd.array(best - MAX_OFFSET, dtype="Int64")
        if not frequent.any():  # cross-attention has no offsets
            offset[:] = pd.NA
        if second.replicated:
            replicates = second.replicate_means()[:, heads, best]
        else:  # one text: nothing to draw from
            replicates = np.full((REPLICATES, site.n_heads), np.nan)
        return offset, Evidence(second.mean()[heads, best], second.chance_level()[best], second.count[best], replicates)


class _BatchPass:
    """One forward pass: the layer being read, and the geometries that its layers share."""

    def __init__(self, observation: Observation, batch: Batch) -> None:
        self.observation = observation
        self.batch = batch
        self.geometries: dict[tuple, Geometry] = {}
        self.open: tuple[Site, LayerReader] | None = None
        examples = batch.examples or tuple(range(observation.n_texts, observation.n_texts + len(batch)))
        self.weights = poisson_weights(examples, seed=observation.seed)
        self.odd = np.array(examples) % 2 == 1

    def run(self) -> None:
        heads = self.observation.heads
        handler = site_handler(heads.sites, self._reader_of, own_eager=heads.own_eager)
        with (
            torch.no_grad(),
            seam.evaluating(heads.model),
            seam.engaged(heads.model, handler),
            edits_at_projections(heads.model, heads.sites, self._read_contribution),
        ):
            heads.forward(self.batch)
        self._close()

    def sides(self, kind: str) -> tuple[Tokens, Tokens]:
        """Tokens of the queries and of the keys of a kind of attention."""
        source, target = self.batch.source, self.batch.target
        if target is None or kind == "encoder":
            return source, source
        return (target, source) if kind == "cross" else (target, target)

    def _reader_of(self, site: Site, call: AttentionCall) -> Reader:
        self._close()
        cross = site.kind == "cross"
        known = (id(call.mask), call.causal, cross, call.query.shape[2], call.key.shape[2])
        if known not in self.geometries:
            self.geometries[known] = geometry_of(call, *self.sides(site.kind))
        self.open = site, LayerReader(self.geometries[known], site.n_heads, offsets=self.observation.offsets)
        return self.open[1].read

    def _close(self) -> None:
        """Add the layer that has just been read to the running sums."""
        if self.open is None:
            return
        site, reader = self.open
        self.open = None
        self.observation.rows[site.key].add(reader.sums(), self.weights)
        offsets = reader.offset_sums()
        if offsets is not None:
            if not self.odd.all():
                self.observation.chosen_on[site.key].add(offsets, texts=~self.odd)
            if self.odd.any():
                self.observation.measured_on[site.key].add(offsets, self.weights, texts=self.odd)

    def _read_contribution(self, site: Site, entering: Tensor) -> None:
        """Norm of what each head adds to the layer's output, ||z_h W_h||, through W_h W_h^T: no output per head."""
        gram = self.observation.heads.gram(site)
        if gram is None:
            return
        queries, _ = self.sides(site.kind)
        slices = per_head(entering, site).float().view(*queries.ids.shape, site.n_heads, site.value_dim)
        squares = torch.einsum("bqhd,hde,bqhe->bhq", slices, gram.to(slices), slices)
        rows = squares.clamp_min(0).sqrt().unsqueeze(0)
        counted = torch.stack([queries.valid, queries.valid & ~queries.special]).unsqueeze(0)
        nothing = torch.full(queries.ids.shape, float("nan"), device=rows.device).unsqueeze(0)
        self.observation.norms[site.key].add(sum_rows(rows, counted, nothing))


def observe(
    heads: Heads, batches: Iterable[Batch], labels: Sequence[Label], *, seed: int = 0, progress: Progress | None = None
) -> Observation:
    """Show all batches to the model; raises DataError where there is none."""
    observation = Observation(heads, labels, seed=seed)
    total = len(batches) if isinstance(batches, Sized) else None
    for done, batch in enumerate(batches, 1):
        observation.add(batch.to(heads.device))
        if progress is not None:
            progress(done, total)
    if observation.n_texts == 0:
        raise DataError("There is no text to observe.", "Give at least one text of two tokens.")
    return observation
