"""What the engine works on: a model whose attention was found and proven, with all that was learned on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor, nn

from headlab.attention.prove.declared import DeclaredSite, prove_declared
from headlab.attention.prove.example import example_batch
from headlab.attention.prove.proofs import probe_and_prove
from headlab.attention.prove.trunk import Trunk, find_trunk
from headlab.attention.reach.projections import edits_at_projections
from headlab.attention.reach.sites import Edit, Proof, Site, require_seen
from headlab.attention.reach.views import ReaderOf, View, site_handler
from headlab.base.errors import UnsupportedModelError, UsageError
from headlab.base.masks import LayerKey
from headlab.models.state import device_of, evaluating
from headlab.models.texts.batch import Batch


@dataclass(frozen=True, eq=False)
class Subject:
    """A model as it was proven: its attention sites, the view that shows them, and how its forward pass is run.

    `trunk` is run where only what happens on the way counts. `checkpoint` is None for a bare module. Two subjects are
    equal where they are the same object.
    """

    module: nn.Module
    checkpoint: Any
    example: Batch  # the short texts that the model was probed on
    sites: tuple[Site, ...]
    view: View
    proofs: tuple[Proof, ...]
    unseen: tuple[str, ...]
    trunk: Trunk
    _grams: dict[LayerKey, Tensor | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model: Any, declared: Iterable[DeclaredSite] | None = None, example: Batch | None = None) -> Subject:
        """Probe and prove a torch module, or a Checkpoint that holds one in `.model`.

        Raises UnsupportedModelError, with the reason, for a model about which nothing can be proven.
        """
        if not isinstance(model, nn.Module) and not isinstance(getattr(model, "model", None), nn.Module):
            cause = f"Heads takes a torch module or an opened checkpoint, not {model!r}."
            raise UsageError(cause, f"Open it first: Heads(headlab.open_model({model!r})).")
        module: nn.Module = model if isinstance(model, nn.Module) else model.model
        batch = example_batch(module) if example is None else example.to(device_of(module))
        finding = probe_and_prove(module, batch) if declared is None else prove_declared(module, batch, list(declared))
        return cls(
            module=module,
            checkpoint=None if isinstance(model, nn.Module) else model,
            example=batch,
            sites=tuple(finding.sites),
            view=finding.view,
            proofs=tuple(finding.proofs),
            unseen=finding.unseen,
            trunk=find_trunk(module, finding.sites, finding.view, batch),
        )

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        return device_of(self.module)

    @cached_property
    def heads_per_layer(self) -> dict[LayerKey, int]:
        """Number of heads by (kind, layer)."""
        return {site.key: site.n_heads for site in self.sites}

    @cached_property
    def index(self) -> pd.MultiIndex:
        """(kind, layer, head) of every head, in the order of every table and score."""
        rows = [(*site.key, head) for site in self.sites for head in range(site.n_heads)]
        return pd.MultiIndex.from_tuples(rows, names=["kind", "layer", "head"])

    @property
    def causal(self) -> bool:
        """Whether no self-attention of the model sees later tokens."""
        return all(site.causal for site in self.sites if site.kind != "cross")

    def forward(self, batch: Batch) -> None:
        """One forward pass for what it shows on the way: without the language-model head where there is one."""
        self.trunk.forward(batch)

    @contextlib.contextmanager
    def watched(self, reader_of: ReaderOf) -> Iterator[None]:
        """Inside, in evaluation mode and without gradients, every attention call is shown to its reader."""
        handler = site_handler(self.sites, reader_of, self.view)
        with torch.no_grad(), evaluating(self.module), self.view.engage(self.module, handler):
            yield

    def edited(self, edit: Edit) -> contextlib.AbstractContextManager[None]:
        """Inside, edit(site, entering) replaces what enters each output projection, unless it is None."""
        return edits_at_projections(self.module, self.sites, edit)

    def gram(self, site: Site) -> Tensor | None:
        """W_h W_h^T of the site's projection, (head, value_dim, value_dim); None where it is not one plain matrix."""
        if site.key not in self._grams:
            weight = site.weight()
            self._grams[site.key] = None if weight is None else torch.einsum("hdm,hem->hde", weight, weight).float()
        return self._grams[site.key]

    def need_sight(self, keys: Iterable[LayerKey] | None = None) -> None:
        """Raise UnsupportedModelError for layers (all without `keys`) that were declared without their weights."""
        asked = set(self.heads_per_layer if keys is None else keys)
        blind = next((site for site in self.sites if not site.seen and site.key in asked), None)
        if blind is not None:
            cause = f"The {blind.kind} layer {blind.layer} was declared without weights."
            raise UnsupportedModelError(cause, "Name a module that returns its attention as `weights`.")

    def need_gates(self, what: str) -> None:
        """Raise UnsupportedModelError where heads cannot be `what` (removed, gated, given gradients): tier 3."""
        if self.view.tier == 3:
            reason = next(proof.detail for proof in self.proofs if not proof.passed)
            cause = f"The heads of {type(self.module).__name__} cannot be {what}: {reason}."
            raise UnsupportedModelError(cause, "Only its statistics, labels and maps are to be had.")

    def need_projections(self, what: str) -> None:
        """Raise UnsupportedModelError unless every layer hands its heads to one output projection."""
        self.need_gates(what)
        without = next((site for site in self.sites if site.projection is None), None)
        if without is not None:
            cause = f"{without.name} has no single output projection whose input could be read."
            raise UnsupportedModelError(cause, "Use another score with this model, such as gradient or ablation.")

    def need_ablation(self, ablation: str) -> None:
        """Raise UnsupportedModelError where heads of a layer cannot be ablated that way."""
        for site in self.sites:
            if ablation in ("mean", "resample") and site.projection is None:
                replacement = "a mean" if ablation == "mean" else "another text's"
                cause = f"{site.name} has no single output projection whose input could be {replacement}."
                raise UnsupportedModelError(cause, "Use zero or uniform ablation with this model.")
            if ablation == "uniform" and not site.seen:
                raise UnsupportedModelError(
                    f"The {site.kind} layer {site.layer} was declared without weights, so that its attention cannot be "
                    "made uniform.",
                    "Name a module that returns its attention as `weights`.",
                )

    def need_seen(self, seen: Container[LayerKey]) -> None:
        """Raise ProofError where a pass went by without a layer, whose attention can be seen, being seen."""
        require_seen([site.key for site in self.sites if site.seen], seen)


class HasSubject(Protocol):
    """Heads, as the public functions take them."""

    @property
    def subject(self) -> Subject: ...
