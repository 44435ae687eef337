"""The heads of one model: what a user holds to look at them, to remove them, and to ask what they are worth."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from headlab.attention.change.ablations import refuse_ablation, removed
from headlab.attention.change.donors import N_DONORS, Donors, find_donors
from headlab.attention.change.output_gradients import slopes_of
from headlab.attention.observe.observation import Progress, observe
from headlab.attention.observe.statistics import STATISTICS
from headlab.attention.reach.declared import DeclaredSite, prove_declared
from headlab.attention.reach.example import example_batch
from headlab.attention.reach.projections import edits_at_projections, gated, per_head
from headlab.attention.reach.proofs import capture_maps, probe_and_prove
from headlab.attention.reach.sites import Site, difference, output_tensor, tolerance
from headlab.attention.reach.views import site_handler
from headlab.base.display import html_of
from headlab.base.errors import ProofError, UnsupportedModelError, UsageError, unknown_name
from headlab.base.masks import ABLATIONS, HeadId, HeadMask, parse_heads
from headlab.labels import load_label
from headlab.models.state import evaluating, frozen
from headlab.models.texts.batch import Batch
from headlab.runs.maps import Maps

Loss = Callable[[nn.Module, Batch], Tensor]


class Heads:
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
        if not isinstance(model, nn.Module) and not isinstance(getattr(model, "model", None), nn.Module):
            raise UsageError(f"Heads takes a torch module or an opened checkpoint, not {model!r}.",
                             f"Open it first: Heads(headlab.open_model({model!r})).")  # fmt: skip
        self.checkpoint = None if isinstance(model, nn.Module) else model
        self.model: nn.Module = model if isinstance(model, nn.Module) else model.model
        self.example = example = example_batch(self.model) if example is None else example.to(self.device)
        finding = probe_and_prove(self.model, example) if sites is None else prove_declared(self.model, example, sites)
        self.sites, self.view, self.proofs, self.unseen = finding.sites, finding.view, finding.proofs, finding.unseen
        self._grams: dict[tuple[str, int], Tensor | None] = {}
        self._trunk = self._find_trunk(example)
        self._without_cache = self._runs_without_cache(example)

    @property
    def subject(self) -> Heads:
        """What observation, gradients, donors and replay work on."""
        return self

    @property
    def device(self) -> torch.device:
        """Where the model's inputs go."""
        return next((p.device for p in self.model.parameters() if not p.is_meta), torch.device("cpu"))

    @property
    def tier(self) -> int:
        """1: by the attention interface; 2: by a tap; 3: only the maps that the model returns, nothing to remove; 0: by
        the modules that were declared."""
        return self.view.tier

    @property
    def heads_per_layer(self) -> dict[tuple[str, int], int]:
        """Number of heads by (kind, layer)."""
        return {site.key: site.n_heads for site in self.sites}

    @property
    def n_heads(self) -> int:
        return sum(site.n_heads for site in self.sites)

    @property
    def single_stack(self) -> bool:
        """Whether the model has one kind of attention, so that heads are named L3H5."""
        return len({site.kind for site in self.sites}) == 1

    @property
    def index(self) -> pd.MultiIndex:
        """(kind, layer, head) of every head, in the order of every table and score."""
        rows = [(*site.key, head) for site in self.sites for head in range(site.n_heads)]
        return pd.MultiIndex.from_tuples(rows, names=["kind", "layer", "head"])

    @property
    def kv_groups(self) -> pd.Series:
        """Which query heads share keys and values: heads of one layer with the same number do."""
        groups = [head // (s.n_heads // s.n_kv_heads) for s in self.sites for head in range(s.n_heads)]
        return pd.Series(groups, index=self.index, name="kv_group")

    def __repr__(self) -> str:
        layers = ", ".join(
            f"{sum(s.kind == kind for s in self.sites)} {kind}" for kind in dict.fromkeys(s.kind for s in self.sites)
        )
        return f"Heads({type(self.model).__name__}: {self.n_heads} heads in {layers} layers)"

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def observe(
        self,
        batches: Iterable[Batch],
        labels: Sequence[str] = (),
        statistics: Sequence[str] | None = None,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        """The head table: one row per head with statistics (means over real query tokens, all texts pooled) and labels.

        Nothing of size tokens x tokens is kept, and memory does not grow with the number of texts. Entropy in nats,
        distance in tokens. Raises UsageError for unknown labels or statistics, DataError where there is no text.
        """
        for name in statistics or ():
            if name not in STATISTICS:
                raise unknown_name("statistic", name, STATISTICS)
        if not any(site.seen for site in self.sites):
            self.need_sight(self.sites)
        observation = observe(
            self, batches, [load_label(name) for name in dict.fromkeys(labels)], seed=seed, progress=progress
        )
        table = observation.table().reindex(self.index)
        dropped = set(STATISTICS) - set(STATISTICS if statistics is None else statistics)
        return table.drop(columns=[name + suffix for name in dropped for suffix in ("", "_words")])

    @contextlib.contextmanager
    def masked(
        self, mask: HeadMask, ablation: str = "zero", means: Mapping[tuple[str, int], Tensor] | Donors | None = None
    ) -> Iterator[None]:
        """Inside, the model runs without the removed heads; the output projection's bias stays.

        At the input of the projection each one's slice is 0 (`zero`), its mean (`mean`, with `means` from
        mean_outputs), or that of another text (`resample`, with `means` from donors); under `uniform` the head looks
        at every visible key alike and the layer goes on from there. `means=heads.replacements(ablation, batches)`
        serves all four.

        Raises UsageError for another model's mask, UnsupportedModelError for an ablation that the model's layers do
        not allow, ProofError where a forward pass went by without a removed head's layer being reached, so that "no
        effect" never means "not applied".
        """
        self._check_removal(mask, ablation, means)
        edited = {key: torch.tensor(mask[key]) for key in mask if not mask[key].all()}
        passes = 0

        def count(*_: Any) -> None:
            nonlocal passes
            passes += 1

        hook = self.model.register_forward_hook(count)
        try:
            with removed(self.model, self.sites, self.view, edited, ablation, means) as reached:
                yield
        finally:
            hook.remove()
        missed = set(edited) - reached
        if passes and missed:
            kind, layer = sorted(missed)[0]
            raise ProofError(f"The model ran, but its {kind} layer {layer} was not reached by the mask.",
                             "Nothing measured under this mask counts; is the model compiled or wrapped?")  # fmt: skip

    @contextlib.contextmanager
    def gate_context(self, gates: Mapping[tuple[str, int], Tensor]) -> Iterator[None]:
        """Inside, each head's contribution is multiplied by its gate, through which gradients flow.

        A layer's gates are (head,), or (row, head) with one for each row of the batch; layers that are not named stay
        as they are. Raises UsageError for layers and numbers of heads that the model does not have.
        """
        self.need_gates("gated")
        sizes = self.heads_per_layer
        for key, gate in gates.items():
            if gate.dim() not in (1, 2) or gate.shape[-1] != sizes.get(key):
                raise UsageError(f"Gates of shape {tuple(gate.shape)} for {key} do not fit the model.",
                                 "Give (heads,) or (rows, heads of the layer) for each (kind, layer).")  # fmt: skip
        with gated(self.model, self.sites, self.view, dict(gates)):
            yield

    def _check_removal(self, mask: HeadMask, ablation: str, means: Any) -> None:
        self.need_gates("removed")
        if not isinstance(mask, HeadMask):
            raise UsageError(f"A mask is a HeadMask, not {type(mask).__name__}.",
                             "Make it with HeadMask.removing(heads, like=heads).")  # fmt: skip
        if mask.heads_per_layer != self.heads_per_layer:
            raise UsageError("The mask belongs to another model.", "Make it with HeadMask.removing(heads, like=heads).")
        if ablation not in ABLATIONS:
            raise unknown_name("ablation", ablation, ABLATIONS)
        if ablation == "mean" and (means is None or isinstance(means, Donors)):
            raise UsageError("Mean ablation needs each head's mean output.", "Pass means=heads.mean_outputs(batches).")
        if ablation == "resample" and not isinstance(means, Donors):
            raise UsageError("Resample ablation needs other texts' outputs.", "Pass means=heads.donors(batches).")
        refuse_ablation(ablation, self.sites)

    def need_sight(self, sites: Iterable[Site]) -> None:
        """Refuse to show what cannot be seen: a layer that was declared without its weights."""
        blind = next((site for site in sites if not site.seen), None)
        if blind is not None:
            raise UnsupportedModelError(f"The {blind.kind} layer {blind.layer} was declared without weights.",
                                        "Name a module that returns its attention as `weights`.")  # fmt: skip

    def need_gates(self, what: str) -> None:
        if self.tier == 3:
            reason = next(proof.detail for proof in self.proofs if not proof.passed)
            raise UnsupportedModelError(f"The heads of {type(self.model).__name__} cannot be {what}: {reason}.",
                                        "Only its statistics, labels and maps are to be had.")  # fmt: skip

    def mean_outputs(self, batches: Iterable[Batch]) -> dict[tuple[str, int], Tensor]:
        """Each head's mean slice at the input of its output projection, over real tokens: (head, value_dim)."""
        self.need_gates("replaced by their means")
        total: dict[tuple[str, int], Tensor] = {}
        count: dict[tuple[str, int], int] = {}
        for batch in batches:
            here = batch.to(self.device)

            def add(site: Site, entering: Tensor, here: Batch = here) -> None:
                tokens = here.source if site.kind == "encoder" or here.target is None else here.target
                slices = per_head(entering, site).reshape(*tokens.ids.shape, site.n_heads, site.value_dim)
                total[site.key] = total.get(site.key, 0) + slices[tokens.valid].double().sum(0)
                count[site.key] = count.get(site.key, 0) + int(tokens.valid.sum())

            with torch.no_grad(), evaluating(self.model), edits_at_projections(self.model, self.sites, add):
                self.forward(here)
        return {key: (value / count[key]).float() for key, value in total.items()}

    def donors(self, batches: Iterable[Batch], *, n: int = N_DONORS, seed: int = 0) -> Donors:
        """Slices of `n` texts, chosen by the seed, for resample ablation; DataError for fewer than 2 examples."""
        self.need_gates("replaced by those of other texts")
        refuse_ablation("resample", self.sites)
        return find_donors(self, batches, n, seed)

    def replacements(
        self, ablation: str, batches: Iterable[Batch], *, seed: int = 0
    ) -> Mapping[tuple[str, int], Tensor] | Donors | None:
        """What `masked` needs as `means` for an ablation: the means or the donors of these texts, or nothing."""
        if ablation == "mean":
            return self.mean_outputs(batches)
        return self.donors(batches, seed=seed) if ablation == "resample" else None

    def capture(
        self, batch: Batch, layers: Sequence[int] | None = None, heads: Sequence[HeadId] | None = None
    ) -> dict[tuple[str, int], Tensor]:
        """Attention maps (batch, head, query, key) in float32 by (kind, layer); the only method that keeps maps.

        `layers` keeps those layers of every kind; `heads` keeps those heads, in their order within each layer.
        """
        if not isinstance(batch, Batch):
            raise UsageError(f"capture takes a headlab.Batch, not {type(batch).__name__}.",
                             "Make one with headlab.text_batches(checkpoint, texts).")  # fmt: skip
        chosen = None
        if layers is not None or heads is not None:
            chosen = self._chosen(layers, heads)
        self.need_sight(site for site in self.sites if chosen is None or site.key in chosen)
        with evaluating(self.model):
            return capture_maps(self.model, batch.to(self.device), self.sites, self.view, chosen)

    def maps(
        self, batches: Sequence[Batch], n: int | None = None, *, layers: Sequence[int] | None = None,
        heads: str | Sequence[HeadId] | None = None,
    ) -> Maps:  # fmt: skip
        """Attention maps of the first n texts with their tokens, one for each head, which a notebook shows.

        `layers` and `heads` choose, as in `capture`; `heads` may be text (`"L3H5,L4H0"`). Raises UsageError for heads
        that do not exist and for more than 4 GiB of maps.
        """
        from headlab.attention.observe.maps import attention_maps

        chosen = parse_heads(heads, self) if isinstance(heads, str) else heads
        return attention_maps(self, batches, n, layers, chosen)

    def gradients(self, batches: Iterable[Batch], loss: Loss, *, at: HeadMask | None = None) -> Iterator[np.ndarray]:
        """For each batch d loss / d gate, (example, head), with every gate at 1: one backward pass for all heads.

        With a mask `at` the gates of removed heads stand at 0.

        `loss(model, batch)` returns one differentiable number per example. Rows of a batch that share an example id
        (two sequences of a minimal pair) are summed. Heads are in the order of `index`. Raises UnsupportedModelError
        where nothing can be removed and where the loss has no gradient.
        """
        self.need_gates("given gradients")
        for batch in batches:
            with (
                torch.inference_mode(False),
                torch.enable_grad(),
                evaluating(self.model),
                frozen(self.model),
            ):
                slopes = self._gradients_on(batch.to(self.device).clone(), loss, at)
            yield slopes  # the caller's own code runs with the model as it was found

    def _gradients_on(self, batch: Batch, loss: Loss, at: HeadMask | None) -> np.ndarray:
        gates = {
            site.key: torch.ones(len(batch), site.n_heads, device=self.device, requires_grad=True)
            for site in self.sites
        }
        with gated(self.model, self.sites, self.view, gates):
            if at is not None:
                for key, gate in gates.items():
                    gate.data *= torch.tensor(at[key]).to(gate)
            found = slopes_of(loss(self.model, batch), list(gates.values()))
        pairs = zip(gates.values(), found, strict=True)
        rows = torch.cat([torch.zeros_like(gate) if slope is None else slope for gate, slope in pairs], 1)
        return _sum_by_example(rows.detach().double().cpu().numpy(), batch.examples)

    def forward(self, batch: Batch) -> None:
        """One forward pass for what it shows on the way: without the language-model head where there is one."""
        inputs = {name: value for name, value in batch.inputs.items() if name != "labels"}
        if self._without_cache:
            inputs["use_cache"] = False  # keys and values of all layers would be kept for nothing
        self._trunk(**inputs)

    def gram(self, site: Site) -> Tensor | None:
        """W_h W_h^T of the site's projection, (head, value_dim, value_dim); None where it is not one plain matrix."""
        if site.key not in self._grams:
            weight = site.weight()
            self._grams[site.key] = None if weight is None else torch.einsum("hdm,hem->hde", weight, weight).float()
        return self._grams[site.key]

    def _find_trunk(self, example: Batch) -> nn.Module:
        """The base model, if running it alone reaches every site; else the model itself."""
        base = getattr(self.model, "base_model", None)
        if not isinstance(base, nn.Module) or base is self.model:
            return self.model
        seen: set[tuple[str, int]] = set()
        handler = site_handler(self.sites, lambda site, call: seen.add(site.key), self.view)
        try:
            with torch.no_grad(), evaluating(self.model), self.view.engage(self.model, handler):
                base(**example.inputs)
        except Exception:  # whatever a base model raises on inputs that were made for the whole one
            return self.model
        return base if len(seen) == len(self.sites) else self.model

    def _runs_without_cache(self, example: Batch) -> bool:
        """Whether the trunk takes use_cache=False, and its output stays the same."""
        inputs = {name: value for name, value in example.inputs.items() if name != "labels"}
        try:
            with torch.no_grad(), evaluating(self.model):
                plain = output_tensor(self._trunk(**inputs))
                without = output_tensor(self._trunk(**inputs, use_cache=False))
        except Exception:  # a module that has never heard of use_cache may raise anything
            return False
        return difference(without, plain, example) <= tolerance(self.model)

    def _chosen(self, layers: Sequence[int] | None, heads: Sequence[HeadId] | None) -> dict[tuple[str, int], list[int]]:
        wanted = list(self.index) if heads is None else [HeadId(*head) for head in heads]
        HeadMask.removing(wanted, like=self)  # refuses heads that do not exist
        known = {layer for _, layer in self.heads_per_layer}
        for layer in layers or ():
            if layer not in known:
                raise UsageError(f"The model has no layer {layer}.", f"It has layers {min(known)} to {max(known)}.")
        chosen: dict[tuple[str, int], list[int]] = {}
        for kind, layer, head in wanted:
            if layers is None or layer in layers:
                chosen.setdefault((kind, layer), []).append(head)
        return chosen


def _sum_by_example(rows: np.ndarray, examples: Sequence[int]) -> np.ndarray:
    if len(set(examples)) == len(examples):
        return rows
    order = {example: i for i, example in enumerate(dict.fromkeys(examples))}
    summed = np.zeros((len(order), rows.shape[1]))
    np.add.at(summed, [order[example] for example in examples], rows)
    return summed
