"""Prove, then claim: nothing is said about a model's heads before it has been shown to be true of this model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headlab.attention import seam
from headlab.attention.seam import AttentionCall
from headlab.attention.sites import (
    CallCounter,
    Probe,
    Proof,
    Site,
    difference,
    gates_at_projections,
    output_tensor,
    record,
    run,
    sites_of,
    tolerance,
)
from headlab.attention.streaming import Reader, attend
from headlab.errors import UnsupportedModelError
from headlab.models.batch import Batch

# Relative change of the outputs, below which a gate cannot be told from rounding.
SMALLEST_EFFECT = 1e-6

ReaderOf = Callable[[Site, AttentionCall], Reader | None]


def site_handler(
    sites: list[Site],
    reader_of: ReaderOf,
    *,
    own_eager: bool = False,
    gates: dict[tuple[str, int], Tensor] | None = None,
) -> seam.Handler:
    """An attention function that shows each site's blocks to its reader, and can scale heads at its own output."""
    by_module: dict[int, dict[int, Site]] = {}
    for site in sites:
        by_module.setdefault(id(site.module), {})[site.call] = site
    counter = CallCounter({key: len(found) for key, found in by_module.items()})

    def handler(call: AttentionCall) -> Tensor:
        found = by_module.get(id(call.module))
        if found is None:
            raise RuntimeError(f"{type(call.module).__name__} calls attention that the probe did not see.")
        site = found[counter.next(call.module)]
        output = attend(call, reader_of(site, call), own_eager=own_eager)
        if gates is not None and site.key in gates:
            output = output * gates[site.key].unsqueeze(-1).to(output)
        return output

    return handler


def probe_and_prove(model: nn.Module, batch: Batch) -> tuple[list[Site], list[Proof], bool]:
    """The model's sites, what was proven, and whether the model's own eager arithmetic is needed.

    Raises UnsupportedModelError, with the reason, where anything cannot be proven.
    """
    with seam.evaluating(model):
        native = _native_output(model, batch)
        probe, logits, own_eager = _reproduce(model, batch, native)
        sites = sites_of(model, probe, batch)
        with torch.no_grad():
            proofs = [logits, _maps_equal_eager(model, batch, sites, own_eager)]
            proofs.append(_gates_equal(model, batch, sites, own_eager, native))
    for proof in proofs:
        if not proof.passed:
            raise UnsupportedModelError(f"{type(model).__name__}: {proof.name} does not hold ({proof.detail}).",
                                        "headlab shows and removes heads only where this can be proven.")  # fmt: skip
    return sites, proofs, own_eager


def _native_output(model: nn.Module, batch: Batch) -> Tensor:
    try:
        with torch.no_grad():
            return output_tensor(run(model, batch))
    except Exception as error:  # whatever a forward raises on inputs that it was not made for
        cause = (str(error).splitlines() or [""])[0]
        raise UnsupportedModelError(
            f"The forward of {type(model).__name__} fails on the probe ({type(error).__name__}: {cause}).",
            "Pass example=Batch(...) with inputs that it takes.",
        ) from error


def _reproduce(model: nn.Module, batch: Batch, native: Tensor) -> tuple[Probe, Proof, bool]:
    """The first arithmetic under which the model's output stays what it was: headlab's, then the model's own."""
    gaps = []
    for own_eager in (False, True):
        try:
            probe = record(model, batch, own_eager=own_eager)
        except (RuntimeError, TypeError, ValueError) as error:
            gaps.append(f"{'own eager function' if own_eager else 'headlab'}: {str(error).splitlines()[0]}")
            continue
        if not probe.calls:
            raise UnsupportedModelError(
                f"{type(model).__name__} never calls transformers' attention interface, so its heads cannot be seen.",
                "Models that look attention up by name (most of transformers v5) work.",
            )
        gap = difference(probe.output, native, batch)
        if gap <= tolerance(model):
            return probe, Proof("outputs under headlab equal the model's own", True, f"{gap:.1e}"), own_eager
        gaps.append(f"{'own eager function' if own_eager else 'headlab'}: outputs differ by {gap:.1e}")
    raise UnsupportedModelError(
        f"{type(model).__name__} gives other outputs under headlab ({'; '.join(gaps)}).",
        "Its attention does something that headlab does not reproduce.",
    )


def _maps_equal_eager(model: nn.Module, batch: Batch, sites: list[Site], own_eager: bool) -> Proof:
    """Every attention map that the model itself returns was seen, and is the same."""
    name = "every attention layer is seen, with the model's own maps"
    with seam.implementation(model, "eager"), seam.no_new_hooks(model):
        try:
            output = run(model, batch, output_attentions=True)
        except (TypeError, ValueError) as error:
            return Proof(name, True, f"the model returns no maps to compare ({str(error).splitlines()[0]})")
    eager = _returned_maps(output)
    if not eager:
        return Proof(name, True, f"{len(sites)} layers; the model returns no maps to compare")
    seen = capture_maps(model, batch, sites, own_eager=own_eager)
    gap = 0.0
    for kind, maps in eager.items():
        ours = [seen[site.key] for site in sites if kind in (site.kind, "single")]
        if len(ours) != len(maps):
            return Proof(name, False, f"{len(maps)} {kind} layers return maps, {len(ours)} were seen")
        rows = (batch.target if kind != "encoder" and batch.target is not None else batch.source).valid
        for mine, theirs in zip(ours, maps, strict=True):
            theirs = theirs.float()
            if mine.shape != theirs.shape:
                return Proof(name, False, f"{kind} maps are {tuple(theirs.shape)}, seen {tuple(mine.shape)}")
            gap = max(gap, (mine - theirs).abs().amax((1, 3))[rows].max().item())
    return Proof(name, gap <= tolerance(model), f"{len(sites)} layers, maps differ by {gap:.1e}")


def _returned_maps(output: object) -> dict[str, list[Tensor]]:
    """The 4-D maps of an output by kind; layers without softmax attention return None and are left out."""
    single = [m for m in (getattr(output, "attentions", None) or ()) if isinstance(m, Tensor) and m.dim() == 4]
    named = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    maps = {kind: [m for m in (getattr(output, name, None) or ()) if isinstance(m, Tensor) and m.dim() == 4]
            for kind, name in named.items()}  # fmt: skip
    maps = {kind: found for kind, found in maps.items() if found}
    return maps or ({"single": single} if single else {})


def capture_maps(
    model: nn.Module,
    batch: Batch,
    sites: list[Site],
    *,
    own_eager: bool,
    heads: dict[tuple[str, int], list[int]] | None = None,
) -> dict[tuple[str, int], Tensor]:
    """Attention maps (batch, head, query, key) in float32 of all sites, or of the chosen heads."""
    maps: dict[tuple[str, int], Tensor] = {}

    def reader_of(site: Site, call: AttentionCall) -> Reader | None:
        chosen = list(range(site.n_heads)) if heads is None else heads.get(site.key)
        if chosen is None:
            return None
        shape = (call.query.shape[0], len(chosen), call.query.shape[2], call.key.shape[2])
        found = maps[site.key] = torch.zeros(shape, device=call.query.device)

        def read(block) -> None:  # type: ignore[no-untyped-def]
            part = block.attention(slice(None) if heads is None else chosen)
            found[:, :, block.start : block.stop, : part.shape[-1]] = part

        return read

    with torch.no_grad(), seam.engaged(model, site_handler(sites, reader_of, own_eager=own_eager)):
        run(model, batch)
    return maps


def _gates_equal(model: nn.Module, batch: Batch, sites: list[Site], own_eager: bool, native: Tensor) -> Proof:
    """Heads scaled at the attention function and at the projection give the same outputs, and other than native.

    The two are independent ways to gate a head; that they agree, each head with a gate of its own, shows that every
    head's slice was found.
    """
    name = "gating a head at the attention function equals gating its slice at the projection's input"
    lacking = [site.name for site in sites if site.projection is None]
    if lacking:
        return Proof(name, False, f"no output projection was found for {lacking[0]}")
    generator = torch.Generator().manual_seed(0)
    gates = {s.key: (0.5 + torch.rand(s.n_heads, generator=generator) / 2).to(native) for s in sites}
    with seam.engaged(model, site_handler(sites, lambda site, call: None, own_eager=own_eager, gates=gates)):
        at_function = output_tensor(run(model, batch))
    with gates_at_projections(model, sites, gates):
        at_projection = output_tensor(run(model, batch))
    gap = difference(at_function, at_projection, batch)
    effect = difference(at_projection, native, batch)
    if effect < SMALLEST_EFFECT:
        return Proof(name, False, f"the gates change outputs by {effect:.1e}, too little to prove anything")
    # Where heads hardly change anything, two wrong gates would agree as well.
    enough = gap <= min(tolerance(model), 0.1 * effect)
    return Proof(name, enough, f"{gap:.1e}, where the gates change outputs by {effect:.1e}")
