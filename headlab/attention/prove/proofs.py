"""Prove, then claim: nothing is said about a model's heads before it has been shown to be true of this model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headlab.attention.prove.probe import record, sites_of
from headlab.attention.prove.refusals import check_model, without_attention
from headlab.attention.prove.returned_maps import prove_returned_maps
from headlab.attention.reach.blocks import Block, Reader, attend
from headlab.attention.reach.call import AttentionCall, Handler, by_query_head
from headlab.attention.reach.multihead import multihead_modules
from headlab.attention.reach.projections import Gates, edits_at_projections, scaling_by
from headlab.attention.reach.sites import Proof, Site, difference, output_tensor, require_seen, run, tolerance
from headlab.attention.reach.state import hooked, implementation, no_new_hooks, uncompiled
from headlab.attention.reach.tap import attention_beside
from headlab.attention.reach.views import INTERFACE, MAPS, OWN_EAGER, TAP, View, no_reader, returned_maps, site_handler
from headlab.base.errors import ProofError, UnsupportedModelError
from headlab.base.masks import LayerKey
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch

# Relative change of the outputs, below which a gate cannot be told from rounding.
SMALLEST_EFFECT = 1e-6
NOTHING_SEEN = "no attention was seen"


class Unproven(Exception):
    """A way to see the model for which something does not hold; the text says what."""


@dataclass(frozen=True)
class Finding:
    """A model's sites, how they are seen, what was proven, and the layers that return maps but were not seen."""

    sites: list[Site]
    view: View
    proofs: list[Proof]
    unseen: tuple[str, ...] = ()


def probe_and_prove(model: nn.Module, batch: Batch) -> Finding:
    """The best way to see the model's attention of which everything can be proven.

    Raises UnsupportedModelError, with the reason of every way tried, where there is none.
    """
    check_model(model, batch)
    with evaluating(model), uncompiled():
        native = native_output(model, batch)
        eager = _eager_maps(model, batch)
        best: Finding | None = None
        reasons = []
        closed = multihead_modules(model)
        # transformers' interface knows nothing of torch's own attention modules; the tap sees both.
        for view in (TAP, INTERFACE, OWN_EAGER) if closed else (INTERFACE, OWN_EAGER, TAP):
            try:
                finding = _prove(model, batch, view, native, eager)
            except Unproven as reason:
                reasons.append(f"{view.name}: {reason}")
                continue
            if best is None or len(finding.unseen) < len(best.unseen):
                best = finding
            if not best.unseen:
                return best
        if best is not None:
            return best
        sites, proof = prove_returned_maps(model, batch, eager)
        if proof.passed:
            refused = Proof("heads can be removed", False, "; ".join(reasons))
            return Finding(sites, MAPS, [proof, refused])
    if not eager and all(reason.endswith(NOTHING_SEEN) for reason in reasons):
        raise without_attention(model)
    reasons.append(f"maps: {proof.detail}")
    raise UnsupportedModelError(
        f"{type(model).__name__}: nothing can be proven about its heads ({'; '.join(reasons)}).",
        "headlab shows and removes heads only where this can be proven.",
    )


def native_output(model: nn.Module, batch: Batch) -> Tensor:
    """What the model returns without headlab; UnsupportedModelError where its forward fails on the batch."""
    try:
        with torch.no_grad():
            return output_tensor(run(model, batch))
    except Exception as error:  # whatever a forward raises on inputs that it was not made for
        raise UnsupportedModelError(
            f"The forward of {type(model).__name__} fails on the probe ({_first_line(error)}).",
            "Pass example=Batch(...) with inputs that it takes.",
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _eager_maps(model: nn.Module, batch: Batch) -> dict[str, list[Tensor]]:
    """The attention maps that the model itself returns, where it does."""
    try:
        with torch.no_grad(), implementation(model, "eager"), no_new_hooks(model):
            return returned_maps(run(model, batch, output_attentions=True))
    except Exception:  # a model that cannot return maps may raise anything; then there is nothing to compare with
        return {}


def _prove(model: nn.Module, batch: Batch, view: View, native: Tensor, eager: dict[str, list[Tensor]]) -> Finding:
    """Everything that must hold for a way to see the model; raises Unproven where something does not."""
    try:
        probe = record(model, batch, view.engage, own_eager=view.own_eager)
    except Exception as error:  # whatever a model's own code raises where it is run in another way than it expects
        raise Unproven(_first_line(error)) from error
    if not probe.calls:
        raise Unproven(NOTHING_SEEN)
    gap = difference(probe.output, native, batch)
    if gap > tolerance(model):
        raise Unproven(f"outputs differ by {gap:.1e}")
    proofs = [Proof("outputs under headlab equal the model's own", True, f"{gap:.1e}")]
    all_sites = sites_of(model, probe, batch)
    sites = [site for site in all_sites if site.over_tokens]
    view = replace(view, ignored=frozenset(id(site.module) for site in all_sites if not site.over_tokens))
    if not sites:
        raise Unproven("its attention is not between the tokens of the text")
    with torch.no_grad():
        maps, unseen = _maps_equal(model, batch, sites, view, eager)
        gates = gates_equal(model, batch, sites, view, native)
        if not gates.passed:
            # Something between the heads and the projection mixes them (a norm, a router): gate before it.
            early = [replace(site, projection=None, projection_name="", direct=False) for site in sites]
            again = gates_equal(model, batch, early, view, native)
            sites, gates = (early, again) if again.passed else (sites, gates)
    proofs += [maps, gates]
    for proof in proofs:
        if not proof.passed:
            raise Unproven(f"not shown that {proof.name} ({proof.detail})")
    unseen += tuple(f"{site.name} (not between tokens)" for site in all_sites if not site.over_tokens)
    handler = site_handler(sites, no_reader, view)
    with torch.no_grad():
        beside = attention_beside(model, handler, view.engage, lambda: run(model, batch))
    unseen += tuple(f"{name} (attention of another shape)" for name in beside)
    seen = {id(site.module) for site in all_sites}
    unseen += tuple(name for name, module in _multihead_that_runs(model, batch) if id(module) not in seen)
    return Finding(sites, view, proofs, unseen)


def _multihead_that_runs(model: nn.Module, batch: Batch) -> list[tuple[str, nn.Module]]:
    """Torch's own attention modules that the forward pass calls: a text does not reach a tower for images."""
    present = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)]
    if not present:
        return []
    ran: set[int] = set()
    hooks = [m.register_forward_pre_hook(lambda module, arguments: ran.add(id(module))) for _, m in present]
    with hooked(hooks):
        native_output(model, batch)
    return [(name, module) for name, module in present if id(module) in ran]


def _maps_equal(
    model: nn.Module, batch: Batch, sites: list[Site], view: View, eager: dict[str, list[Tensor]]
) -> tuple[Proof, tuple[str, ...]]:
    """Every attention map that the model itself returns was seen and is the same; else the layers that were not."""
    name = "every attention layer is seen, with the model's own maps"
    if not eager:
        return Proof(name, True, f"{len(sites)} layers; the model returns no maps to compare"), ()
    try:
        seen = capture_maps(model, batch, sites, view)
    except ProofError as error:
        return Proof(name, False, error.cause), ()
    worst, unseen, matched = 0.0, [], 0
    for kind, maps in eager.items():
        ours = [seen[site.key] for site in sites if kind in (site.kind, "single")]
        rows = batch.queries("encoder" if kind == "single" else kind).valid
        for layer, theirs in enumerate(maps):
            gaps = [_map_gap(mine, theirs.float(), rows) for mine in ours]
            hit = next((i for i, gap in enumerate(gaps) if gap <= tolerance(model)), None)
            if hit is None:
                unseen.append(f"{kind} layer {layer}" if kind != "single" else f"layer {layer}")
                continue
            worst, matched = max(worst, gaps[hit]), matched + 1
            ours = ours[hit + 1 :]  # layers come in order
    if not matched:
        return Proof(name, False, "no map is the same as the model's own"), ()
    detail = f"{matched} of {matched + len(unseen)} maps, which differ by {worst:.1e}"
    if unseen:
        detail += f"; not seen: {', '.join(unseen)}"
    return Proof(name, True, detail), tuple(unseen)


def _map_gap(mine: Tensor, theirs: Tensor, rows: Tensor) -> float:
    if mine.shape != theirs.shape:
        return float("inf")
    gap = (mine - theirs).abs().amax((1, 3))
    return (gap[rows] if gap.shape == rows.shape else gap).max().item()


def capture_maps(
    model: nn.Module,
    batch: Batch,
    sites: Sequence[Site],
    view: View,
    heads: Mapping[LayerKey, list[int]] | None = None,
) -> dict[LayerKey, Tensor]:
    """Attention maps (batch, head, query, key) in float32 of all sites, or of the chosen heads."""
    maps: dict[tuple[str, int], Tensor] = {}

    def reader_of(site: Site, call: AttentionCall) -> Reader | None:
        chosen = slice(None) if heads is None else heads.get(site.key)
        if chosen is None:
            return None
        count = site.n_heads if isinstance(chosen, slice) else len(chosen)
        shape = (call.query.shape[0], count, call.query.shape[2], call.key.shape[2])
        device = call.query.device if call.weights is None else call.weights.device
        attention = maps[site.key] = torch.zeros(shape, device=device)

        def read(block: Block) -> None:
            part = block.attention(chosen)
            attention[:, :, block.rows, : part.shape[-1]] = part

        return read

    with torch.no_grad(), view.engage(model, site_handler(sites, reader_of, view)):
        run(model, batch)
    require_seen([site.key for site in sites] if heads is None else heads, maps)
    return maps


def gates_equal(model: nn.Module, batch: Batch, sites: list[Site], view: View, native: Tensor) -> Proof:
    """Heads scaled where they are computed and at the projection's input give the same outputs, and other than native.

    The two are independent ways to gate a head; that they agree, each head with a gate of its own, shows that every
    head's slice was found. A layer without one projection is scaled at its values instead.
    """
    name = "gating a head at the attention function equals gating its slice at the projection's input"
    lacking = [site for site in sites if site.projection is None]
    if any(site.head_dim == 0 for site in lacking):
        return Proof(name, False, f"no output projection was found for {lacking[0].name}")
    generator = torch.Generator().manual_seed(0)
    seen = [site for site in sites if site.seen]
    gates = {s.key: (0.5 + torch.rand(s.n_heads, generator=generator) / 2).to(native) for s in seen}
    with view.engage(model, site_handler(sites, no_reader, view, gates=gates)):
        at_function = output_tensor(run(model, batch))
    values = {site.key: gates[site.key] for site in lacking}
    with (
        view.engage(model, _scaling_values(sites, view, values)),
        edits_at_projections(model, sites, scaling_by(gates)),
    ):
        at_projection = output_tensor(run(model, batch))
    gap = difference(at_function, at_projection, batch)
    effect = difference(at_projection, native, batch)
    if effect < SMALLEST_EFFECT:
        return Proof(name, False, f"the gates change outputs by {effect:.1e}, too little to prove anything")
    # Where heads hardly change anything, two wrong gates would agree as well.
    enough = gap <= min(tolerance(model), 0.1 * effect)
    detail = f"{gap:.1e}, where the gates change outputs by {effect:.1e}"
    if lacking:
        detail += f"; {len(lacking)} layers have no single projection and are gated where they are computed"
    return Proof(name, enough, detail)


def _scaling_values(sites: list[Site], view: View, gates: Gates) -> Handler:
    """A handler that scales the values of those heads, each query head with a copy of its keys and values."""
    plain = site_handler(sites, no_reader, view)
    by_module = {(id(site.module), site.call): site for site in sites}
    counts: dict[int, int] = {}

    def handler(call: AttentionCall) -> Tensor | None:
        number = counts.get(id(call.module), 0)
        counts[id(call.module)] = number + 1
        site = by_module.get((id(call.module), number))
        if site is None or site.key not in gates:
            return plain(call)
        key, value = (by_query_head(x, call.n_heads) for x in (call.key, call.value))
        return attend(replace(call, key=key, value=value * gates[site.key].view(1, -1, 1, 1).to(value)))

    return handler
