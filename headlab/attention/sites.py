"""Find a model's attention layers with one probe, and prove that they are seen and can be gated."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headlab.attention import seam
from headlab.attention.seam import AttentionCall
from headlab.attention.streaming import attend
from headlab.errors import UnsupportedModelError
from headlab.models.batch import Batch

# What counts as equal, relative to the largest output: single precision differs by summation order only; the model's
# own half-precision kernels round differently from headlab's single-precision blocks.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@dataclass(frozen=True)
class Site:
    """One attention layer: the n-th call of a module, its heads, and the projection that mixes them."""

    kind: str
    layer: int
    name: str
    module: nn.Module
    call: int  # a module that serves several layers is called several times
    n_heads: int
    n_kv_heads: int
    head_dim: int  # width of a query or key
    value_dim: int  # width of a head's output
    causal: bool
    projection: nn.Module | None = None
    projection_name: str = ""
    projection_call: int = 0
    direct: bool = False  # the projection's input is the attention output itself, head beside head

    @property
    def key(self) -> tuple[str, int]:
        return self.kind, self.layer

    def weight(self) -> Tensor | None:
        """The projection's weight as (head, value_dim, model width); None where it is not one matrix."""
        weight = getattr(self.projection, "weight", None)
        if not isinstance(weight, Tensor) or weight.dim() != 2 or weight.is_meta or not weight.is_floating_point():
            return None
        rows = weight if isinstance(self.projection, Conv1D) else weight.T
        if rows.shape[0] != self.n_heads * self.value_dim:
            return None
        return rows.detach().reshape(self.n_heads, self.value_dim, -1)


Edit = Callable[[Site, Tensor], Tensor | None]


@dataclass(frozen=True)
class Proof:
    """One statement about a model that was checked, with the largest difference found."""

    name: str
    passed: bool
    detail: str


class CallCounter:
    """Numbers the calls of each module within a forward pass, however many passes there are."""

    def __init__(self, calls_per_pass: dict[int, int] | None = None) -> None:
        self.calls_per_pass = calls_per_pass or {}
        self.made: Counter[int] = Counter()

    def next(self, module: nn.Module) -> int:
        number = self.made[id(module)]
        self.made[id(module)] += 1
        return number % self.calls_per_pass.get(id(module), 1 << 62)


def run(model: nn.Module, batch: Batch, **more: Any) -> Any:
    """The model's forward pass on a batch."""
    return model(**batch.inputs, **more)


def output_tensor(output: Any) -> Tensor:
    """The tensor by which two forward passes are compared: logits, else the last hidden state, else the first."""
    for name in ("logits", "last_hidden_state"):
        if isinstance(value := getattr(output, name, None), Tensor):
            return value
    if isinstance(output, Tensor):
        return output
    for value in output.values() if isinstance(output, dict) else output:
        if isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0:
            return value
    raise UnsupportedModelError("The model's forward returns no tensor to compare.", "Wrap it so that it returns one.")


def difference(a: Tensor, b: Tensor, batch: Batch) -> float:
    """Largest difference on real tokens, relative to the largest value of `b` (at least 1)."""
    tokens = batch.target or batch.source
    a, b = a.detach().float(), b.detach().float()
    if a.shape != b.shape:
        return float("inf")
    if a.dim() >= 3 and a.shape[:2] == tokens.valid.shape:
        a, b = a[tokens.valid], b[tokens.valid]
    gap = (a - b).abs().max().item()
    return float("inf") if gap != gap else gap / max(1.0, b.abs().max().item())


def tolerance(model: nn.Module) -> float:
    """What counts as equal for the model's precision."""
    return TOLERANCE.get(next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32), 1e-4)


@dataclass
class Probe:
    """What one recorded forward pass found."""

    calls: list[AttentionCall]
    projections: dict[int, tuple[nn.Module, int, bool]]  # by call: module, its n-th call, direct
    output: Tensor


def record(model: nn.Module, batch: Batch, *, own_eager: bool) -> Probe:
    """One forward pass under headlab, noting every attention call and the projection that its output enters.

    The projection is the first module after the call whose input is as wide as all heads together and depends on the
    call's output (a gradient flows). Width alone is not enough: gates beside the projection have the same width.
    """
    calls: list[AttentionCall] = []
    outputs: list[Tensor] = []
    leaves: list[Tensor] = []
    projections: dict[int, tuple[nn.Module, int, bool]] = {}
    counter = CallCounter()

    def handler(call: AttentionCall) -> Tensor:
        output = attend(call, own_eager=own_eager).detach()
        leaf = torch.zeros_like(output, requires_grad=True)
        calls.append(_without_tensors(call))
        outputs.append(output)
        leaves.append(leaf)
        return output + leaf

    def before(module: nn.Module, arguments: tuple) -> None:
        number = counter.next(module)
        entering = arguments[0] if arguments and isinstance(arguments[0], Tensor) else None
        for index in range(len(outputs) - 1, -1, -1):
            if index in projections or entering is None:
                continue
            if _depends(entering, outputs[index], leaves[index]):
                same = entering.numel() == outputs[index].numel()
                direct = same and torch.equal(entering.detach().reshape(-1), outputs[index].reshape(-1))
                projections[index] = (module, number, direct)
            break  # only the latest unclaimed call can be on its way into this module

    hooks = [m.register_forward_pre_hook(before) for m in model.modules() if _is_projection_like(m)]
    try:
        with torch.inference_mode(False), torch.enable_grad(), seam.frozen(model), seam.engaged(model, handler):
            result = output_tensor(run(model, batch.clone()))
    finally:
        for hook in hooks:
            hook.remove()
    return Probe(calls, projections, result.detach())


def _without_tensors(call: AttentionCall) -> AttentionCall:
    """The call with its tensors on no device: shapes stay, memory goes."""
    query, key, value = (x.detach().to("meta") for x in (call.query, call.key, call.value))
    mask = call.mask.detach() if call.mask is not None else None
    return replace(call, query=query, key=key, value=value, mask=mask, position_bias=None, arguments=None)


def _is_projection_like(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 2 and not isinstance(module, nn.Embedding)


def _depends(entering: Tensor, output: Tensor, leaf: Tensor) -> bool:
    if entering.shape[-1] != output.shape[-1] * output.shape[-2] or not entering.requires_grad:
        return False
    gradient = torch.autograd.grad(entering.sum(), leaf, retain_graph=True, allow_unused=True)[0]
    return gradient is not None and bool((gradient != 0).any())


def sites_of(model: nn.Module, probe: Probe, batch: Batch) -> list[Site]:
    """Sites of a recorded pass, with kind and layer measured from shapes, masks and module names."""
    names = {id(module): name for name, module in model.named_modules()}
    counter = CallCounter()
    sites = []
    for index, call in enumerate(probe.calls):
        module, number, direct = probe.projections.get(index, (None, 0, False))
        sites.append(Site(
            kind=_kind(call, batch), layer=-1, name=names[id(call.module)], module=call.module,
            call=counter.next(call.module), n_heads=call.query.shape[1], n_kv_heads=call.key.shape[1],
            head_dim=call.query.shape[-1], value_dim=call.value.shape[-1], causal=_is_causal(call),
            projection=module, projection_name=names.get(id(module), ""), projection_call=number, direct=direct,
        ))  # fmt: skip
    return _with_layers(sites)


def _kind(call: AttentionCall, batch: Batch) -> str:
    """Encoder, decoder or cross; the probe's source and target differ in length so that shapes tell them apart."""
    if batch.target is None:
        return "decoder" if _is_causal(call) else "encoder"
    source, target = batch.source.ids.shape[1], batch.target.ids.shape[1]
    queries, keys = call.query.shape[2], call.key.shape[2]
    if queries == target and keys == source:
        return "cross"
    return "decoder" if queries == target else "encoder"


def _is_causal(call: AttentionCall) -> bool:
    """Whether no query of the probe sees a later key."""
    if call.mask is None:
        return call.causal
    visible = call.mask if call.mask.dtype == torch.bool else call.mask > -1e4
    return not bool(torch.triu(visible, 1).any())


def _with_layers(sites: list[Site]) -> list[Site]:
    """Number the layers: by the index in the module's name where that is unique within its kind, else by order."""
    result: list[Site] = []
    for kind in dict.fromkeys(site.kind for site in sites):
        members = [site for site in sites if site.kind == kind]
        named = [int(m.group(1)) if (m := re.search(r"(?:^|\.)(\d+)(?:\.|$)", s.name)) else None for s in members]
        unique = None not in named and len(set(named)) == len(named)
        numbers = named if unique else range(len(members))
        result += [replace(site, layer=int(n)) for site, n in zip(members, numbers, strict=True)]  # type: ignore[arg-type]
    order = {id(s.module): i for i, s in enumerate(sites)}
    return sorted(result, key=lambda s: (("encoder", "decoder", "cross").index(s.kind), s.layer, order[id(s.module)]))


@contextlib.contextmanager
def gates_at_projections(model: nn.Module, sites: list[Site], gates: dict[tuple[str, int], Tensor]) -> Iterator[None]:
    """Inside, each head's slice at the input of its output projection is multiplied by its gate.

    A gate is (head,) or, one per example, (batch, head). The projection's bias stays.
    """

    def scale(site: Site, entering: Tensor) -> Tensor:
        gate = gates[site.key]
        heads = per_head(entering, site)
        if gate.dim() == 2:
            rows = heads.shape[0]
            gate = gate.view(gate.shape[0], *[1] * (heads.dim() - 3), *gate.shape[1:])
            if rows != gate.shape[0]:  # batch and tokens flattened into one dimension
                gate = gate.repeat_interleave(rows // gate.shape[0], 0)
        return (heads * gate.unsqueeze(-1).to(heads)).view(entering.shape)

    with edits_at_projections(model, sites, lambda site, x: scale(site, x) if site.key in gates else None):
        yield


def per_head(entering: Tensor, site: Site) -> Tensor:
    """A projection's input (..., width) as (..., head, value_dim)."""
    return entering.reshape(*entering.shape[:-1], site.n_heads, site.value_dim)


@contextlib.contextmanager
def edits_at_projections(model: nn.Module, sites: list[Site], edit: Edit) -> Iterator[None]:
    """Inside, the input of each site's projection is replaced by edit(site, input), unless that is None.

    `sites` are all sites of the model: the calls of a shared projection are told apart by counting them.
    """
    by_module: dict[int, dict[int, Site]] = {}
    for site in sites:
        if site.projection is not None:
            by_module.setdefault(id(site.projection), {})[site.projection_call] = site
    modules = {id(site.projection): site.projection for site in sites if site.projection is not None}
    calls = {key: max(found) + 1 for key, found in by_module.items()}
    counter = CallCounter(calls)

    def before(module: nn.Module, arguments: tuple) -> tuple | None:
        site = by_module[id(module)].get(counter.next(module))
        if site is None:
            return None
        edited = edit(site, arguments[0])
        return None if edited is None else (edited, *arguments[1:])

    hooks = [module.register_forward_pre_hook(before) for module in modules.values()]
    # A pass that failed half-way must not shift the count of the next one.
    hooks.append(model.register_forward_pre_hook(lambda module, arguments: counter.made.clear()))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
