"""Three ways to see a model's attention; each hands every attention call of a pass to one handler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headlab.attention.reach.blocks import Reader, attend
from headlab.attention.reach.call import AttentionCall, Handler
from headlab.attention.reach.interface import engaged
from headlab.attention.reach.sites import CallCounter, Engage, Site
from headlab.attention.reach.state import hooked, implementation, no_new_hooks, uncompiled
from headlab.attention.reach.tap import tapped, weights_call
from headlab.base.masks import LayerKey

ReaderOf = Callable[[Site, AttentionCall], Reader | None]


@dataclass(frozen=True)
class View:
    """How attention is seen. Tiers 1 and 2 can also gate heads; in tier 3 there are only the maps a model returns."""

    name: str
    tier: int
    engage: Engage
    own_eager: bool = False
    ignored: frozenset[int] = frozenset()  # ids of modules whose attention is not between tokens: run, not looked at


def no_reader(site: Site, call: AttentionCall) -> None:
    """Look at nothing."""
    return None


def site_handler(
    sites: Sequence[Site],
    reader_of: ReaderOf,
    view: View,
    *,
    gates: Mapping[LayerKey, Tensor] | None = None,
) -> Handler:
    """A handler that shows each site's blocks to its reader, and can scale heads where their output is computed.

    A gate is (head,) or (batch, head).
    """
    by_module: dict[int, dict[int, Site]] = {}
    for site in sites:
        by_module.setdefault(id(site.module), {})[site.call] = site
    counter = CallCounter({id(site.module): site.calls_per_pass for site in sites})

    def handler(call: AttentionCall) -> Tensor | None:
        site = by_module.get(id(call.module), {}).get(counter.next(call.module))
        if site is None:
            plain = id(call.module) in view.ignored and call.weights is None
            return attend(call, own_eager=view.own_eager) if plain else None
        output = attend(call, reader_of(site, call), own_eager=view.own_eager)
        if gates is None or site.key not in gates:
            return output
        gate = gates[site.key].to(output)
        gate = gate.view(-1, 1, gate.shape[-1], 1)  # (batch or 1, 1, head, 1)
        return output * (gate if call.weights is None else gate.transpose(1, 2))

    return handler


@contextlib.contextmanager
def _maps_engaged(model: nn.Module, handler: Handler) -> Iterator[None]:
    """Inside, each pass of the model returns its attention maps, and these go to `handler` when the pass has ended."""

    def ask(module: nn.Module, arguments: tuple, named: dict) -> tuple[tuple, dict]:
        return arguments, named | {"output_attentions": True}

    def read(module: nn.Module, arguments: tuple, output: Any) -> None:
        for maps in returned_maps(output).values():
            for attention in maps:
                handler(weights_call(module, attention))

    with uncompiled(), implementation(model, "eager"), no_new_hooks(model):
        hooks = [model.register_forward_pre_hook(ask, with_kwargs=True), model.register_forward_hook(read)]
        with hooked(hooks):
            yield


def returned_maps(output: object) -> dict[str, list[Tensor]]:
    """The maps of an output by kind (`single` for one stack); layers without attention return None, left out.

    Attention in chunks comes in five dimensions or more; such a map is none of (batch, head, query, key).
    """

    def tensors(name: str) -> list[Tensor]:
        return [m for m in (getattr(output, name, None) or ()) if isinstance(m, Tensor)]

    named = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    maps = {kind: layers for kind, name in named.items() if (layers := tensors(name))}
    single = tensors("attentions")
    return maps or ({"single": single} if single else {})


INTERFACE = View("transformers' attention interface", 1, engaged)
OWN_EAGER = View("transformers' attention interface, with the model's own eager arithmetic", 1, engaged, True)
TAP = View("a tap on softmax and scaled_dot_product_attention", 2, tapped)
MAPS = View("the attention maps that the model returns", 3, _maps_engaged)
