"""The readers that answer what labels ask of a layer, beside the statistics."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from headlab.attention.observe.copying import copying_sums
from headlab.attention.observe.evidence import SiteSums
from headlab.attention.observe.geometry import Geometry
from headlab.attention.observe.plan import LabelPlan
from headlab.attention.observe.statistics import LayerReader, TextSums
from headlab.attention.observe.targets import TargetReader, key_norms, plan_of
from headlab.attention.observe.words import WordReader
from headlab.attention.reach.blocks import Block
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.sites import Site
from headlab.labels import Scene


class LabelReaders:
    """The readers of one layer's attention for the labels of a plan."""

    def __init__(
        self,
        plan: LabelPlan,
        geometry: Geometry,
        scene: Scene,
        site: Site,
        call: AttentionCall,
        gram: Tensor | None,
        model: nn.Module,
    ) -> None:
        self.plan, self.geometry = plan, geometry
        self.targets: TargetReader | None = None
        self.words: WordReader | None = None
        self.copied: TextSums | None = None
        norms = None
        if plan.contributions and gram is not None and call.weights is None and site.direct:
            norms = key_norms(call.value[:, :, : geometry.n_keys], gram)
        hits = plan.offset_hits and geometry.self_attention
        if plan.targets or hits or norms is not None:
            if "plan" not in geometry.shared:
                geometry.shared["plan"] = plan_of(geometry, scene, plan.targets, plan.contributions)
            shared = geometry.shared["plan"]
            self.targets = TargetReader(
                geometry, scene, plan.targets, shared, site.n_heads, norms=norms, offset_hits=hits
            )
        if plan.pairs and WordReader.reads(scene, site.kind):
            self.words = WordReader(geometry, scene, site)
        if plan.copying and gram is not None and call.weights is None and site.direct:
            self.copied = copying_sums(model, site, call, scene)

    @property
    def active(self) -> bool:
        """Whether any reader wants the blocks."""
        return self.targets is not None or self.words is not None

    def read(self, block: Block) -> None:
        """Show a block to every reader."""
        if self.targets is not None:
            self.targets.read(block)
        if self.words is not None:
            self.words.read(block)

    def add_to(self, sums: SiteSums, statistics: LayerReader, weights: np.ndarray, odd: np.ndarray) -> None:
        """Add what was read to the layer's running sums; `odd` says in which half each text is."""
        offsets = statistics.offset_sums()
        if offsets is not None and "offset_mass" in sums.offsets:
            sums.offsets["offset_mass"].add(offsets, weights, odd)
        if self.targets is not None:
            if self.plan.targets:
                sums.targets.add(self.targets.sums(), weights)
            if (shares := self.targets.share_sums()) is not None:
                sums.shares.add(shares)
            if (excluded := self.targets.excluded_sums()) is not None:
                sums.excluded.add(excluded)
            if (hits := self.targets.offset_hit_sums()) is not None:
                sums.offsets["offset_hits"].add(hits, weights, odd)
        if self.words is not None:
            sums.excluded.add(self.words.excluded_sums())
            sums.pairs.add(self.words.sums(self.plan.pair_names), weights, odd)
        if self.copied is not None:
            sums.copying.add(self.copied, weights)
