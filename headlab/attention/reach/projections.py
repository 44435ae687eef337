"""Change what heads contribute while the model runs, at the input of each layer's output projection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn

from headlab.attention.reach.multihead import opened
from headlab.attention.reach.sites import CallCounter, Edit, Site
from headlab.attention.reach.state import hooked, uncompiled
from headlab.attention.reach.views import View, no_reader, site_handler
from headlab.base.masks import LayerKey
from headlab.models.texts.batch import Tokens

Gates = Mapping[LayerKey, Tensor]  # (head,) or, one for each row, (batch, head)


def per_head(entering: Tensor, site: Site) -> Tensor:
    """A projection's input (..., width) as (..., head, value_dim)."""
    return entering.reshape(*entering.shape[:-1], site.n_heads, site.value_dim)


def per_token(entering: Tensor, site: Site, tokens: Tokens) -> Tensor:
    """A projection's input as (batch, token, head, value_dim), whether or not batch and tokens are one dimension."""
    return entering.reshape(*tokens.ids.shape, site.n_heads, site.value_dim)


def scaling_by(gates: Gates) -> Edit:
    """The edit that multiplies each head's slice by its gate, (head,) or, one per example, (batch, head)."""

    def scale(site: Site, entering: Tensor) -> Tensor | None:
        gate = gates.get(site.key)
        if gate is None:
            return None
        heads = per_head(entering, site)
        if gate.dim() == 2:
            rows = heads.shape[0]
            gate = gate.view(gate.shape[0], *[1] * (heads.dim() - 3), *gate.shape[1:])
            if rows != gate.shape[0]:  # batch and tokens flattened into one dimension
                gate = gate.repeat_interleave(rows // gate.shape[0], 0)
        return (heads * gate.unsqueeze(-1).to(heads)).reshape(entering.shape)

    return scale


@contextlib.contextmanager
def gated(model: nn.Module, sites: Sequence[Site], view: View, gates: Gates) -> Iterator[None]:
    """Inside, each head's contribution is multiplied by its gate; the projection's bias stays.

    Where a layer has no single projection, the head's output is scaled where it is computed.
    """
    inside = {site.key: gates[site.key] for site in sites if site.projection is None and site.key in gates}
    with contextlib.ExitStack() as stack:
        if inside:
            handler = site_handler(sites, no_reader, view, gates=inside)
            stack.enter_context(view.engage(model, handler))
        stack.enter_context(edits_at_projections(model, sites, scaling_by(gates)))
        yield


@contextlib.contextmanager
def edits_at_projections(model: nn.Module, sites: Sequence[Site], edit: Edit) -> Iterator[None]:
    """Inside, the input of each site's projection is replaced by edit(site, input), unless that is None.

    `sites` are all sites of the model: the calls of a shared projection are told apart by counting them.
    """
    by_module: dict[int, dict[int, Site]] = {}
    for site in sites:
        if site.projection is not None:
            by_module.setdefault(id(site.projection), {})[site.projection_call] = site
    modules = {id(site.projection): site.projection for site in sites if site.projection is not None}
    counter = CallCounter({key: max(calls) + 1 for key, calls in by_module.items()})

    def before(module: nn.Module, arguments: tuple) -> tuple | None:
        site = by_module[id(module)].get(counter.next(module))
        if site is None:
            return None
        entering = arguments[0].transpose(0, 1) if site.tokens_first else arguments[0]
        edited = edit(site, entering)
        if edited is None:
            return None
        return (edited.transpose(0, 1) if site.tokens_first else edited, *arguments[1:])

    hooks = [module.register_forward_pre_hook(before) for module in modules.values()]
    # A pass that failed half-way must not shift the count of the next one.
    hooks.append(model.register_forward_pre_hook(lambda module, arguments: counter.made.clear()))
    with hooked(hooks), uncompiled(), opened(model):
        yield
