"""One batch through the model: each layer's blocks go to its readers, their sums to the running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headlab.attention.observe.geometry import Geometry, geometry_of
from headlab.attention.observe.readers import LabelReaders
from headlab.attention.observe.running_sums import poisson_weights
from headlab.attention.observe.statistics import LayerReader, sum_rows
from headlab.attention.reach.blocks import Block, Reader
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.projections import edits_at_projections, per_head
from headlab.attention.reach.sites import Site
from headlab.attention.reach.views import site_handler
from headlab.base.errors import ProofError
from headlab.labels import Scene
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch, Tokens

if TYPE_CHECKING:
    from headlab.attention.observe.observation import Observation


class BatchPass:
    """One forward pass: the layer being read, and the geometries that its layers share."""

    def __init__(self, observation: Observation, batch: Batch) -> None:
        self.observation = observation
        self.batch = batch
        self.geometries: dict[tuple, Geometry] = {}
        self.open: tuple[Site, LayerReader, LabelReaders] | None = None
        self.read: set[tuple[str, int]] = set()
        examples = batch.examples or tuple(range(observation.n_texts, observation.n_texts + len(batch)))
        self.weights = poisson_weights(examples, seed=observation.seed)
        self.odd = np.array(examples) % 2 == 1

    def run(self) -> None:
        heads = self.observation.heads
        handler = site_handler(heads.sites, self._reader_of, heads.view)
        with (
            torch.no_grad(),
            evaluating(heads.model),
            heads.view.engage(heads.model, handler),
            edits_at_projections(heads.model, heads.sites, self._read_contribution),
        ):
            heads.forward(self.batch)
        self._close()
        missed = [site for site in heads.sites if site.seen and site.key not in self.read]
        if missed:
            raise ProofError(
                f"A pass went by without {missed[0].kind} layer {missed[0].layer} being seen.",
                "Nothing observed in it counts; does something change the model while it runs?",
            )

    def sides(self, kind: str) -> tuple[Tokens, Tokens]:
        """Tokens of the queries and of the keys of a kind of attention."""
        source, target = self.batch.source, self.batch.target
        if target is None or kind == "encoder":
            return source, source
        return (target, source) if kind == "cross" else (target, target)

    def scene(self, kind: str) -> Scene:
        """What labels are told about the tokens of a kind of attention."""
        queries, keys = self.sides(kind)
        checkpoint, frequencies = self.observation.heads.checkpoint, self.observation.frequencies
        extra = dict(self.batch.extra) | ({} if frequencies is None else {"frequencies": frequencies})
        return Scene(queries, keys, getattr(checkpoint, "tokenizer", None), extra)

    def _reader_of(self, site: Site, call: AttentionCall) -> Reader:
        self._close()
        plan = self.observation.plan
        cross = site.kind == "cross"
        known = (id(call.mask), call.causal, cross, site.kind, call.query.shape[2], call.key.shape[2])
        if known not in self.geometries:
            self.geometries[known] = geometry_of(call, *self.sides(site.kind))
        geometry = self.geometries[known]
        if "scene" not in geometry.shared:
            geometry.shared["scene"] = self.scene(site.kind)
        statistics = LayerReader(geometry, site.n_heads, offsets=plan.offset_mass)
        gram = self.observation.heads.gram(site) if plan.contributions or plan.copying else None
        readers = LabelReaders(plan, geometry, geometry.shared["scene"], site, call, gram, self.observation.heads.model)
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
        sums = self.observation.sums[site.key]
        sums.add_rows(statistics.sums(), self.weights)
        readers.add_to(sums, statistics, self.weights, self.odd)

    def _read_contribution(self, site: Site, entering: Tensor) -> None:
        """Norm of what each head adds to the layer's output, ||z_h W_h||, through W_h W_h^T: no output per head."""
        gram = self.observation.heads.gram(site)
        if gram is None:
            return
        queries, _ = self.sides(site.kind)
        slices = per_head(entering, site).float().reshape(*queries.ids.shape, site.n_heads, site.value_dim)
        squares = torch.einsum("bqhd,hde,bqhe->bhq", slices, gram.to(slices), slices)
        rows = squares.clamp_min(0).sqrt().unsqueeze(0)
        counted = torch.stack([queries.valid, queries.valid & ~queries.special]).unsqueeze(0)
        nothing = torch.full(queries.ids.shape, float("nan"), device=rows.device).unsqueeze(0)
        self.observation.sums[site.key].norms.add(sum_rows(rows, counted, nothing))
