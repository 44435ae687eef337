"""Attention sites that a user names: for torch modules whose attention headlab does not find by itself."""

from __future__ import annotations

import contextlib
import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headlab.attention.prove.proofs import SMALLEST_EFFECT, Finding, gates_equal, native_output
from headlab.attention.prove.refusals import check_model
from headlab.attention.reach.call import Handler
from headlab.attention.reach.multihead import opened
from headlab.attention.reach.projections import edits_at_projections, scaling_by
from headlab.attention.reach.sites import Proof, Site, difference, output_tensor, run, tolerance
from headlab.attention.reach.state import hooked, uncompiled
from headlab.attention.reach.tap import weights_call
from headlab.attention.reach.views import View, no_reader, site_handler
from headlab.base.errors import UnsupportedModelError, UsageError, unknown_name
from headlab.base.masks import KINDS
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch


@dataclass(frozen=True)
class DeclaredSite:
    """One attention layer of somebody's own module.

    `projection` names the module whose input holds the heads side by side, (batch, token, head * width): there heads
    are removed and scaled. `weights` names a module whose output is the layer's attention (batch, head, query, key),
    such as its nn.Softmax, or an nn.Identity put there for the purpose; without it there are masks, gradients, scores
    and sweeps, but no statistics. `call` tells layers apart that share their modules: it counts the calls in a pass.
    """

    kind: str  # encoder, decoder or cross
    layer: int
    n_heads: int
    projection: str
    weights: str | None = None
    call: int = 0


@dataclass
class _Met:
    """What a pass of the example showed at the named modules, by name and call."""

    inputs: dict[tuple[str, int], Tensor]
    outputs: dict[tuple[str, int], Any]
    calls: Counter[str]


def prove_declared(model: nn.Module, batch: Batch, declared: Sequence[DeclaredSite]) -> Finding:
    """The declared sites, and what could be proven about them on an example.

    Raises UsageError for a declaration that does not fit the model, UnsupportedModelError where a proof fails.
    """
    check_model(model, batch)
    _check_names(model, declared)
    with evaluating(model), uncompiled(), torch.no_grad():
        native = native_output(model, batch)
        met = _meet(model, batch, declared)
        sites = [_site(model, batch, site, met) for site in declared]
        view = _view_of(sites)
        proofs = [_outputs_equal(model, batch, sites, view, native), *_gates_work(model, batch, sites, native)]
        if any(site.seen for site in sites):
            proofs.append(gates_equal(model, batch, sites, view, native))
    for proof in proofs:
        if not proof.passed:
            raise UnsupportedModelError(
                f"{type(model).__name__}: not shown that {proof.name} ({proof.detail}).",
                "Check the declared modules and the number of heads.",
            )
    order = sorted(sites, key=lambda site: (KINDS.index(site.kind), site.layer))
    return Finding(order, view, [_reached(sites), *proofs])


def _check_names(model: nn.Module, declared: Sequence[DeclaredSite]) -> None:
    if not declared:
        raise UsageError("The list of declared sites is empty.", "Declare each attention layer with a DeclaredSite.")
    modules = dict(model.named_modules())
    for site in declared:
        if site.kind not in KINDS:
            raise unknown_name("kind", site.kind, KINDS)
        for name in filter(None, (site.projection, site.weights)):
            if name not in modules:
                close = difflib.get_close_matches(name, modules, n=1)
                hint = f"Did you mean {close[0]!r}?" if close else "See model.named_modules()."
                raise UsageError(f"{type(model).__name__} has no module {name!r}.", hint)
    places = [(site.kind, site.layer) for site in declared]
    projections = [(site.projection, site.call) for site in declared]
    if len(set(places)) < len(places) or len(set(projections)) < len(projections):
        raise UsageError(
            "Two declared sites have the same kind and layer, or the same projection.",
            "Declare each layer once; layers that share modules differ in `call`.",
        )


def _meet(model: nn.Module, batch: Batch, declared: Sequence[DeclaredSite]) -> _Met:
    """One pass of the example, with what enters and leaves the named modules noted."""
    met = _Met({}, {}, Counter())
    modules = dict(model.named_modules())

    def note(name: str, arguments: tuple, output: Any) -> None:
        place = name, met.calls[name]
        met.calls[name] += 1
        met.outputs[place] = output
        if arguments and isinstance(arguments[0], Tensor):
            met.inputs[place] = arguments[0]

    hooks = [
        modules[name].register_forward_hook(lambda _, arguments, output, name=name: note(name, arguments, output))
        for name in {name for site in declared for name in (site.projection, site.weights) if name}
    ]
    with hooked(hooks), opened(model):
        run(model, batch)
    return met


def _site(model: nn.Module, batch: Batch, declared: DeclaredSite, met: _Met) -> Site:
    """The site of a declaration, with its widths as they were met."""
    queries, keys = batch.queries(declared.kind).ids, batch.keys(declared.kind).ids
    rows = len(queries)
    modules = dict(model.named_modules())
    entering = met.inputs.get((declared.projection, declared.call))
    if entering is None:
        times = met.calls[declared.projection]
        raise UsageError(
            f"The module {declared.projection!r} is called {times} times on the example, "
            f"with a tensor first; call {declared.call} (from 0) is not among them.",
            "Name a module that the model's forward calls.",
        )
    tokens_first = _tokens_first(declared, entering, queries)
    if declared.n_heads < 1 or entering.shape[-1] % declared.n_heads:
        raise UsageError(
            f"{declared.n_heads} heads do not divide the {entering.shape[-1]} numbers per token that "
            f"enter {declared.projection!r}.",
            "Declare the layer's number of heads.",
        )
    causal = declared.kind == "decoder"
    if declared.weights is not None:
        weights = met.outputs.get((declared.weights, declared.call))
        attention = _checked(declared, weights, (rows, declared.n_heads, queries.shape[1], keys.shape[1]))
        causal = not bool(torch.triu((attention > 0).any(1), 1).any())
    seen = modules[declared.weights or declared.projection]
    return Site(
        kind=declared.kind,
        layer=declared.layer,
        name=declared.weights or declared.projection,
        module=seen,
        call=declared.call,
        calls_per_pass=met.calls[declared.weights or declared.projection],
        n_heads=declared.n_heads,
        n_kv_heads=declared.n_heads,
        head_dim=0,
        value_dim=entering.shape[-1] // declared.n_heads,
        causal=causal,
        projection=modules[declared.projection],
        projection_name=declared.projection,
        projection_call=declared.call,
        tokens_first=tokens_first,
        seen=declared.weights is not None,
    )


def _tokens_first(declared: DeclaredSite, entering: Tensor, queries: Tensor) -> bool:
    rows, tokens = queries.shape
    if rows == tokens:
        raise UsageError(
            f"The example has {rows} texts of {tokens} tokens, so that the two cannot be told apart.",
            "Give an example with another number of texts.",
        )
    if entering.shape[:-1] in ((rows, tokens), (rows * tokens,)):
        return False
    if entering.shape[:-1] == (tokens, rows):
        return True
    raise UsageError(
        f"{declared.projection!r} gets the shape {tuple(entering.shape)}, and there are {rows} texts of "
        f"{tokens} tokens.",
        "Name a module whose input is (batch, token, head * width).",
    )


def _checked(declared: DeclaredSite, weights: Any, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(weights, Tensor) or tuple(weights.shape) != shape:
        returned = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise UsageError(
            f"{declared.weights!r} returns {returned}, and the attention of this layer is {shape}.",
            "Name a module that returns the attention (batch, head, query, key).",
        )
    highest = weights.float().sum(-1).max().item()
    if not (highest <= 1 + 1e-2 and weights.min().item() >= 0):
        raise UsageError(
            f"What {declared.weights!r} returns is no attention: its rows sum to {highest:.3g} at most, "
            f"its smallest number is {weights.min().item():.3g}.",
            "Name the softmax, or a module behind it.",
        )
    return weights


def _reached(sites: Sequence[Site]) -> Proof:
    blind = sum(not site.seen for site in sites)
    detail = f"{len(sites)} layers; their kinds and numbers are as declared"
    if blind:
        detail += f"; {blind} without weights: where one head ends and the next begins is as declared"
    return Proof("every declared layer is reached", True, detail)


def _outputs_equal(model: nn.Module, batch: Batch, sites: list[Site], view: View, native: Tensor) -> Proof:
    with view.engage(model, site_handler(sites, no_reader, view)):
        gap = difference(output_tensor(run(model, batch)), native, batch)
    return Proof("outputs under headlab equal the model's own", gap <= tolerance(model), f"{gap:.1e}")


def _gates_work(model: nn.Module, batch: Batch, sites: list[Site], native: Tensor) -> Iterator[Proof]:
    """Each layer by itself: removing its heads changes what the model returns."""
    smallest = float("inf")
    for site in sites:
        with edits_at_projections(model, sites, scaling_by({site.key: torch.zeros(site.n_heads).to(native)})):
            effect = difference(output_tensor(run(model, batch)), native, batch)
        smallest = min(smallest, effect)
        if effect < SMALLEST_EFFECT:
            yield Proof("removing the heads of a layer changes outputs", False, f"{site.name}: {effect:.1e}")
    yield Proof("removing the heads of a layer changes outputs", True, f"at least by {smallest:.1e}")


def _view_of(sites: Sequence[Site]) -> View:
    """The view that shows what the declared modules return as attention, and puts back what the handler makes of it."""
    modules = {id(site.module): site.module for site in sites if site.seen}

    @contextlib.contextmanager
    def engage(model: nn.Module, handler: Handler) -> Iterator[None]:
        def show(module: nn.Module, arguments: tuple, output: Tensor) -> Tensor | None:
            changed = handler(weights_call(module, output))
            return None if changed is None else changed.to(output.dtype)

        hooks = [module.register_forward_hook(show) for module in modules.values()]
        with hooked(hooks), uncompiled():
            yield

    return View("the modules that were declared", 0, engage)
