"""What the layers of a model returned in one pass, kept so that later passes can begin in the middle."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headlab.attention.reach.multihead import opened
from headlab.attention.reach.sites import Site, run
from headlab.attention.reach.state import hooked, replaced_forwards, uncompiled
from headlab.base.masks import LayerKey
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch


class Unrepeatable(Exception):
    """Passes of this model cannot begin in the middle; the text says why."""


@dataclass(frozen=True)
class Layers:
    """The layers of a model in the order in which a pass calls them, and the layer that each site is in."""

    modules: list[nn.Module]
    place: dict[LayerKey, int]  # by a site's key
    sites: Sequence[Site]


def find_layers(model: nn.Module, sites: Sequence[Site], batch: Batch) -> Layers:
    """The members of the outermost lists of modules that hold the sites; raises Unrepeatable where there are none."""
    shared = next((s for s in sites if s.calls_per_pass != 1 or s.call or s.projection_call), None)
    if shared is not None:
        raise Unrepeatable(f"{shared.name} serves several layers")
    holders = {site.key: _holder(model, site) for site in sites}
    lists = {id(members): members for members, _ in holders.values()}
    candidates = {id(module): module for members in lists.values() for module in members.children()}
    order: list[nn.Module] = []
    hooks = [m.register_forward_pre_hook(lambda module, arguments: order.append(module)) for m in candidates.values()]
    with hooked(hooks), torch.no_grad(), evaluating(model), uncompiled(), opened(model):
        run(model, batch)
    if max(Counter(map(id, order)).values(), default=0) > 1:
        raise Unrepeatable("a layer is called more than once in a pass")
    rank = {id(module): place for place, module in enumerate(order)}
    absent = next((site for site in sites if id(holders[site.key][1]) not in rank), None)
    if absent is not None:
        raise Unrepeatable(f"the layer of {absent.name} is not called as a module")
    return Layers(order, {key: rank[id(layer)] for key, (_, layer) in holders.items()}, sites)


def _holder(model: nn.Module, site: Site) -> tuple[nn.Module, nn.Module]:
    """The outermost list of modules around a site, and its member that holds the site."""
    module: nn.Module = model
    for part in site.name.split("."):
        inner = getattr(module, part)
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            return module, inner
        module = inner
    raise Unrepeatable(f"{site.name} is in no list of layers")


@dataclass
class Recording:
    """What each layer, each attention module and each projection of one pass took and gave."""

    layers: Layers
    outputs: dict[int, Any] = field(default_factory=dict)  # by place of the layer
    entering: dict[LayerKey, Tensor] = field(default_factory=dict)  # by site: what its projection got
    projected: dict[LayerKey, Tensor] = field(default_factory=dict)
    returned: dict[LayerKey, Any] = field(default_factory=dict)  # by site: what its attention module gave
    calls: Counter[nn.Module] = field(default_factory=Counter)  # of the model and of each layer

    @property
    def passes(self) -> int:
        """How often the model, or any one layer, was run: decoding may call layers by other ways than the model."""
        return max(self.calls.values(), default=0)

    def before(self, site: Site) -> dict[nn.Module, Any]:
        """The layers before the site's, with what they returned."""
        return {self.layers.modules[i]: self.outputs[i] for i in range(self.layers.place[site.key])}

    def attention(self, site: Site, masks: int) -> dict[nn.Module, Any]:
        """The site's attention module with what it returns when its projection's input is edited; empty if unknown.

        Where the projection lies behind the module, that is what it returned before. Where it lies inside, the
        recorded slices go through the projection again, which edits them by its hooks.
        """
        if site.key not in self.returned or site.key not in self.entering or site.module is site.projection:
            return {}
        inside = any(module is site.projection for module in site.module.modules())
        if not inside:
            return {site.module: self.returned[site.key]}
        before, after = self.entering[site.key], self.projected[site.key]
        if not any(_same(leaf, after) for leaf in _leaves(self.returned[site.key])):
            return {}
        rows = before.shape[1 if site.tokens_first else 0]

        def again() -> Any:
            assert site.projection is not None
            new = site.projection(copies_of(before, masks, rows, dim=1 if site.tokens_first else 0))
            return _mapped(
                self.returned[site.key],
                lambda leaf: new.reshape(-1, *leaf.shape[1:]) if _same(leaf, after) else leaf,
            )

        return {site.module: again}


@contextlib.contextmanager
def recorded(model: nn.Module, recording: Recording) -> Iterator[None]:
    """Inside, the passes of the model are noted; the last one is kept."""
    hooks: list[Any] = []

    def keep(into: dict, key: object) -> Callable[[nn.Module, tuple, Any], None]:
        def hook(module: nn.Module, arguments: tuple, output: Any) -> None:
            into[key] = _mapped(output, torch.clone)  # models may go on to change it in place

        return hook

    def entering(key: LayerKey) -> Callable[[nn.Module, tuple], None]:
        def hook(module: nn.Module, arguments: tuple) -> None:
            recording.entering[key] = arguments[0].clone()

        return hook

    def count(module: nn.Module, *_: Any) -> None:
        recording.calls[module] += 1

    hooks.append(model.register_forward_hook(count))
    for place, layer in enumerate(recording.layers.modules):
        hooks.append(layer.register_forward_hook(count))
        hooks.append(layer.register_forward_hook(keep(recording.outputs, place)))
    for site in recording.layers.sites:
        hooks.append(site.module.register_forward_hook(keep(recording.returned, site.key)))
        if site.projection is not None:
            hooks.append(site.projection.register_forward_pre_hook(entering(site.key)))
            hooks.append(site.projection.register_forward_hook(keep(recording.projected, site.key)))
    with hooked(hooks), uncompiled(), opened(model):
        yield


@contextlib.contextmanager
def one_pass_for_all(model: nn.Module, masks: int, rows: int) -> Iterator[None]:
    """Inside, the first call of the model runs its batch of `rows` rows once for each mask, all in one pass.

    That call and those after it return the part of one mask each.
    """
    if masks == 1:
        yield
        return
    forward = model.forward
    results: list[Any] = []

    @functools.wraps(forward)
    def once(*arguments: Any, **named: Any) -> Any:
        if not results:
            whole = forward(*copies_of(arguments, masks, rows), **copies_of(named, masks, rows))
            results.extend(_part(whole, number, masks, rows) for number in reversed(range(masks)))
        return results.pop()

    with replaced_forwards({model: once}):
        yield


def copies_of(value: Any, masks: int, rows: int, dim: int = 0) -> Any:
    """Every tensor of `rows` rows repeated once for each mask, along the rows; other tensors copied as they are."""

    def repeat(leaf: Tensor) -> Tensor:
        if leaf.dim() <= dim or leaf.shape[dim] != rows:
            return leaf.clone()
        return leaf.repeat(*[masks if place == dim else 1 for place in range(leaf.dim())])

    return _mapped(value, repeat)


def _part(value: Any, number: int, masks: int, rows: int) -> Any:
    """The rows of one mask."""

    def cut(leaf: Tensor) -> Tensor:
        whole = leaf.dim() > 0 and leaf.shape[0] == masks * rows
        return leaf[number * rows : (number + 1) * rows] if whole else leaf

    return _mapped(value, cut)


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nested tuples, lists and dictionaries with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        changed = {name: _mapped(item, change) for name, item in value.items()}
        return type(value)(**changed) if is_dataclass(value) else changed  # the outputs of transformers are both
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, change) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(item, change) for item in value)
    return value


def _leaves(value: Any) -> list[Tensor]:
    leaves: list[Tensor] = []
    _mapped(value, lambda leaf: leaves.append(leaf) or leaf)  # type: ignore[func-returns-value]
    return leaves


def _same(leaf: Tensor, other: Tensor) -> bool:
    return (
        leaf.shape[-1] == other.shape[-1]
        and leaf.numel() == other.numel()
        and torch.equal(leaf.reshape(-1), other.reshape(-1))
    )


def gap_of(value: Any, other: Any) -> float:
    """Largest difference between the tensors of two outputs, relative to the largest value (at least 1)."""
    mine, theirs = _leaves(value), _leaves(other)
    if [leaf.shape for leaf in mine] != [leaf.shape for leaf in theirs]:
        return float("inf")
    gaps = [0.0]
    for a, b in zip(mine, theirs, strict=True):
        if a.is_floating_point() and a.numel():
            gap = (a - b).float().abs().max().item()
            gaps.append(float("inf") if gap != gap else gap / max(1.0, b.float().abs().max().item()))
    return max(gaps)
