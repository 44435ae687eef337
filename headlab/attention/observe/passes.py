"""One batch through the model: each layer's blocks go to its readers, their sums to the running ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from headlab.attention.observe.evidence import SiteSums
from headlab.attention.observe.geometry import Geometry, geometry_of
from headlab.attention.observe.plan import LabelPlan
from headlab.attention.observe.readers import LabelReaders
from headlab.attention.observe.running_sums import poisson_weights
from headlab.attention.observe.statistics import LayerReader, sum_rows
from headlab.attention.reach.blocks import Block, Reader
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.projections import per_token
from headlab.attention.reach.sites import Site
from headlab.attention.subject import Subject
from headlab.base.masks import LayerKey
from headlab.labels import Scene
from headlab.models.texts.batch import Batch


def scene_of(subject: Subject, batch: Batch, kind: str, frequencies: Tensor | None = None) -> Scene:
    """What labels are told about the tokens of a kind of attention; `frequencies` (vocabulary,) count tokens."""
    extra = dict(batch.extra) | ({} if frequencies is None else {"frequencies": frequencies})
    tokenizer = getattr(subject.checkpoint, "tokenizer", None)
    return Scene(batch.queries(kind), batch.keys(kind), tokenizer, extra)


class BatchPass:
    """One forward pass: the layer being read, and the geometries that its layers share.

    `examples` are the ids of the batch's texts; by them (and the seed) bootstrap replicates are drawn, and halves.
    """

    def __init__(
        self,
        subject: Subject,
        batch: Batch,
        plan: LabelPlan,
        sums: Mapping[LayerKey, SiteSums],
        examples: Sequence[int],
        *,
        seed: int = 0,
        frequencies: Tensor | None = None,
    ) -> None:
        self.subject, self.batch, self.plan, self.sums = subject, batch, plan, sums
        self.frequencies = frequencies
        self.geometries: dict[tuple, Geometry] = {}
        self.open: tuple[Site, LayerReader, LabelReaders] | None = None
        self.read: set[LayerKey] = set()
        self.weights = poisson_weights(examples, seed=seed)
        self.odd = np.array(examples) % 2 == 1

    def run(self) -> None:
        """Run the batch; raises ProofError where a layer went by unseen."""
        with self.subject.watched(self._reader_of), self.subject.edited(self._read_contribution):
            self.subject.forward(self.batch)
        self._close()
        self.subject.need_seen(self.read)

    def _reader_of(self, site: Site, call: AttentionCall) -> Reader:
        self._close()
        cross = site.kind == "cross"
        known = (id(call.mask), call.causal, cross, site.kind, call.query.shape[2], call.key.shape[2])
        if known not in self.geometries:
            self.geometries[known] = geometry_of(call, self.batch.queries(site.kind), self.batch.keys(site.kind))
        geometry = self.geometries[known]
        if "scene" not in geometry.shared:
            geometry.shared["scene"] = scene_of(self.subject, self.batch, site.kind, self.frequencies)
        statistics = LayerReader(geometry, site.n_heads, offsets=self.plan.offset_mass)
        gram = self.subject.gram(site) if self.plan.contributions or self.plan.copying else None
        readers = LabelReaders(self.plan, geometry, geometry.shared["scene"], site, call, gram, self.subject.module)
        self.open = site, statistics, readers
        if not readers.active:
            return statistics.read

        def read(block: Block) -> None:
            statistics.read(block)
            readers.read(block)

        return read

    def _close(self) -> None:
        """Add the layer that has just been read to the running sums."""
        if self.open is None:
            return
        site, statistics, readers = self.open
        self.open = None
        self.read.add(site.key)
        self.sums[site.key].add_rows(statistics.sums(), self.weights)
        readers.add_to(self.sums[site.key], statistics, self.weights, self.odd)

    def _read_contribution(self, site: Site, entering: Tensor) -> None:
        """Norm of what each head adds to the layer's output, ||z_h W_h||, through W_h W_h^T: no output per head."""
        gram = self.subject.gram(site)
        if gram is None:
            return
        queries = self.batch.queries(site.kind)
        slices = per_token(entering, site, queries).float()
        squares = torch.einsum("bqhd,hde,bqhe->bhq", slices, gram.to(slices), slices)
        rows = squares.clamp_min(0).sqrt().unsqueeze(0)
        counted = torch.stack([queries.valid, queries.valid & ~queries.special]).unsqueeze(0)
        nothing = torch.full(queries.ids.shape, float("nan"), device=rows.device).unsqueeze(0)
        self.sums[site.key].norms.add(sum_rows(rows, counted, nothing))
