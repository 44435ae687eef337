"""The heads of one model: what a user holds to look at them, to remove them, and to ask what they are worth."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from headlab.attention.change.ablations import Replacements, masked
from headlab.attention.change.donors import N_DONORS, Donors, find_donors
from headlab.attention.change.gates import gate_gradients, under_gates
from headlab.attention.change.replacements import mean_outputs, replacements
from headlab.attention.observe.maps import attention_maps, captured
from headlab.attention.observe.observation import observe
from headlab.attention.prove.declared import DeclaredSite
from headlab.attention.reach.sites import Proof, Site
from headlab.attention.reach.views import View
from headlab.attention.subject import Subject
from headlab.base.display import Displayed
from headlab.base.masks import HeadId, HeadMask, LayerKey, parse_heads
from headlab.base.progress import Progress
from headlab.labels import Label
from headlab.models.texts.batch import Batch, Loss
from headlab.runs.maps import Maps


class Heads(Displayed):
    """The attention heads of a model, found by one probe and proven to be seen and removable.

    `model` is a torch module from transformers, or a Checkpoint that holds one in `.model`. Raises
    UnsupportedModelError, with the reason, for a model about which nothing can be proven. Every method leaves the
    model as it found it: attention implementation, training flags, hooks, parameters.

    `sites` declares the attention of somebody's own module, where headlab does not find it by itself; `example` is a
    batch that the model takes, needed where the model is not from transformers.
    """

    def __init__(
        self, model: Any, sites: Sequence[DeclaredSite] | None = None, *, example: Batch | None = None
    ) -> None:
        self.subject = Subject.of(model, sites, example)

    @property
    def model(self) -> nn.Module:
        """The torch module."""
        return self.subject.module

    @property
    def checkpoint(self) -> Any:
        """The opened checkpoint, None where a bare module was given."""
        return self.subject.checkpoint

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        return self.subject.device

    @property
    def sites(self) -> tuple[Site, ...]:
        """The attention layers, in the order of every table."""
        return self.subject.sites

    @property
    def view(self) -> View:
        """How the model's attention is seen."""
        return self.subject.view

    @property
    def proofs(self) -> tuple[Proof, ...]:
        """What was checked about this model."""
        return self.subject.proofs

    @property
    def unseen(self) -> tuple[str, ...]:
        """Layers that compute attention which is not seen."""
        return self.subject.unseen

    @property
    def tier(self) -> int:
        """1: by the attention interface; 2: by a tap; 3: only the maps that the model returns, nothing to remove; 0: by
        the modules that were declared."""
        return self.view.tier

    @property
    def heads_per_layer(self) -> dict[LayerKey, int]:
        """Number of heads by (kind, layer)."""
        return self.subject.heads_per_layer

    @property
    def n_heads(self) -> int:
        """Number of heads in all layers."""
        return len(self.index)

    @property
    def single_stack(self) -> bool:
        """Whether the model has one kind of attention, so that heads are named L3H5."""
        return len({site.kind for site in self.sites}) == 1

    @property
    def index(self) -> pd.MultiIndex:
        """(kind, layer, head) of every head, in the order of every table and score."""
        return self.subject.index

    @property
    def kv_groups(self) -> pd.Series:
        """Which query heads share keys and values: heads of one layer with the same number do."""
        groups = [head // (s.n_heads // s.n_kv_heads) for s in self.sites for head in range(s.n_heads)]
        return pd.Series(groups, index=self.index, name="kv_group")

    def __repr__(self) -> str:
        kinds = [site.kind for site in self.sites]
        layers = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        return f"Heads({type(self.model).__name__}: {self.n_heads} heads in {layers} layers)"

    def observe(
        self,
        batches: Iterable[Batch],
        labels: Sequence[str | Label] = (),
        statistics: Sequence[str] | None = None,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        """The head table: one row per head with statistics (means over real query tokens, all texts pooled) and labels.

        Nothing of size tokens x tokens is kept, and memory does not grow with the number of texts. Entropy in nats,
        distance in tokens. Raises UsageError for unknown labels or statistics, DataError where there is no text.
        """
        return observe(self.subject, batches, labels, statistics, seed=seed, progress=progress)

    def masked(
        self, mask: HeadMask, ablation: str = "zero", means: Replacements = None
    ) -> contextlib.AbstractContextManager[None]:
        """Inside, the model runs without the removed heads; the output projection's bias stays.

        At the input of the projection each one's slice is 0 (`zero`), its mean (`mean`, with `means` from
        mean_outputs), or that of another text (`resample`, with `means` from donors); under `uniform` the head looks
        at every visible key alike and the layer goes on from there. `means=heads.replacements(ablation, batches)`
        serves all four.

        Raises UsageError for another model's mask, UnsupportedModelError for an ablation that the model's layers do
        not allow, ProofError where a forward pass went by without a removed head's layer being reached, so that "no
        effect" never means "not applied".
        """
        return masked(self.subject, mask, ablation, means)

    def gate_context(self, gates: Mapping[LayerKey, Tensor]) -> contextlib.AbstractContextManager[None]:
        """Inside, each head's contribution is multiplied by its gate, through which gradients flow.

        A layer's gates are (head,), or (row, head) with one for each row of the batch; layers that are not named stay
        as they are. Raises UsageError for layers and numbers of heads that the model does not have.
        """
        return under_gates(self.subject, gates)

    def mean_outputs(self, batches: Iterable[Batch]) -> dict[LayerKey, Tensor]:
        """Each head's mean slice at the input of its output projection, over real tokens: (head, value_dim)."""
        return mean_outputs(self.subject, batches)

    def donors(self, batches: Iterable[Batch], *, n: int = N_DONORS, seed: int = 0) -> Donors:
        """Slices of `n` texts, chosen by the seed, for resample ablation; DataError for fewer than 2 examples."""
        return find_donors(self.subject, batches, n, seed)

    def replacements(self, ablation: str, batches: Iterable[Batch], *, seed: int = 0) -> Replacements:
        """What `masked` needs as `means` for an ablation: the means or the donors of these texts, or nothing."""
        return replacements(self.subject, ablation, batches, seed=seed)

    def capture(
        self, batch: Batch, layers: Sequence[int] | None = None, heads: Sequence[HeadId] | None = None
    ) -> dict[LayerKey, Tensor]:
        """Attention maps (batch, head, query, key) in float32 by (kind, layer); the only method that keeps maps.

        `layers` keeps those layers of every kind; `heads` keeps those heads, in their order within each layer.
        """
        return captured(self.subject, batch, layers, heads)

    def maps(
        self,
        batches: Sequence[Batch],
        n: int | None = None,
        *,
        layers: Sequence[int] | None = None,
        heads: str | Sequence[HeadId] | None = None,
    ) -> Maps:
        """Attention maps of the first n texts with their tokens, one for each head, which a notebook shows.

        `layers` and `heads` choose, as in `capture`; `heads` may be text (`"L3H5,L4H0"`). Raises UsageError for heads
        that do not exist and for more than 4 GiB of maps.
        """
        chosen = parse_heads(heads, self) if isinstance(heads, str) else heads
        return attention_maps(self.subject, batches, n, layers, chosen)

    def gradients(self, batches: Iterable[Batch], loss: Loss, *, at: HeadMask | None = None) -> Iterator[np.ndarray]:
        """For each batch d loss / d gate, (example, head), with every gate at 1: one backward pass for all heads.

        With a mask `at` the gates of removed heads stand at 0.

        `loss(model, batch)` returns one differentiable number per example. Rows of a batch that share an example id
        (two sequences of a minimal pair) are summed. Heads are in the order of `index`. Raises UnsupportedModelError
        where nothing can be removed and where the loss has no gradient.
        """
        return gate_gradients(self.subject, batches, loss, at=at)
