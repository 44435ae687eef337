"""Find a model's attention sites with one recorded forward pass."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headlab.attention.reach.blocks import attend
from headlab.attention.reach.call import AttentionCall, visible_keys
from headlab.attention.reach.sites import CallCounter, Engage, Site, output_tensor, run
from headlab.attention.reach.state import hooked
from headlab.base.masks import KINDS
from headlab.models.state import frozen
from headlab.models.texts.batch import Batch


@dataclass
class Probe:
    """What one recorded forward pass found; calls are in the order in which they were made."""

    calls: list[AttentionCall]
    numbers: list[int]  # which call of its module each one is
    calls_per_pass: Counter[int]  # by module, those included that are no attention
    projections: dict[int, tuple[nn.Module, int, bool]]  # by call: module, its n-th call, direct
    entering: dict[int, torch.Size]  # by call: shape of the projection's input
    output: Tensor


class _Recorder:
    """Notes every attention call of a forward pass and the projection that its output enters.

    The projection is the first module after the call whose input is as wide as all heads together and depends on the
    call's output (a gradient flows). Width alone is not enough: gates beside the projection have the same width.
    """

    def __init__(self, batch: Batch, *, own_eager: bool) -> None:
        self.lengths = {side.ids.shape[1] for side in batch.sides}
        self.own_eager = own_eager
        self.calls: list[AttentionCall] = []
        self.numbers: list[int] = []
        self.outputs: list[Tensor] = []
        self.leaves: list[Tensor] = []
        self.projections: dict[int, tuple[nn.Module, int, bool]] = {}
        self.entering: dict[int, torch.Size] = {}
        self.call_counter, self.module_counter = CallCounter(), CallCounter()

    def handler(self, call: AttentionCall) -> Tensor | None:
        number = self.call_counter.next(call.module)
        if call.weights is not None and not self.lengths.issuperset(call.weights.shape[2:]):
            return None  # a softmax over something else: a router, a vocabulary
        output = attend(call, own_eager=self.own_eager).detach()
        leaf = torch.zeros_like(output, requires_grad=True)
        self.calls.append(_without_tensors(call))
        self.numbers.append(number)
        self.outputs.append(output)
        self.leaves.append(leaf)
        return output + leaf

    def before(self, module: nn.Module, arguments: tuple) -> None:
        """Forward pre-hook of every module that may be a projection."""
        number = self.module_counter.next(module)
        entering = arguments[0] if arguments and isinstance(arguments[0], Tensor) else None
        index = next((i for i in range(len(self.calls) - 1, -1, -1) if i not in self.projections), None)
        # only the latest unclaimed call can be on its way into this module
        if index is None or entering is None or not self._depends(entering, index):
            return
        output = self.outputs[index]
        same = self.calls[index].weights is None and entering.numel() == output.numel()
        direct = same and torch.equal(entering.detach().reshape(-1), output.reshape(-1))
        self.projections[index] = (module, number, direct)
        self.entering[index] = entering.shape

    def _depends(self, entering: Tensor, index: int) -> bool:
        call, output = self.calls[index], self.outputs[index]
        width = entering.shape[-1]
        wide = width % call.n_heads == 0 if call.weights is not None else width == output.shape[-1] * output.shape[-2]
        if not wide or not entering.requires_grad:
            return False
        leaf = self.leaves[index]
        gradient = torch.autograd.grad(entering.sum(), leaf, retain_graph=True, allow_unused=True)[0]
        return gradient is not None and bool((gradient != 0).any())


def record(model: nn.Module, batch: Batch, engage: Engage, *, own_eager: bool) -> Probe:
    """One forward pass under headlab with every attention call and projection noted."""
    recorder = _Recorder(batch, own_eager=own_eager)
    hooks = [m.register_forward_pre_hook(recorder.before) for m in model.modules() if _is_projection_like(m)]
    with (
        hooked(hooks),
        torch.inference_mode(False),
        torch.enable_grad(),
        frozen(model),
        engage(model, recorder.handler),
    ):
        result = output_tensor(run(model, batch.clone()))
    return Probe(
        recorder.calls,
        recorder.numbers,
        recorder.call_counter.made,
        recorder.projections,
        recorder.entering,
        result.detach(),
    )


def _without_tensors(call: AttentionCall) -> AttentionCall:
    """The call with its tensors on no device: shapes stay, memory goes."""
    query, key, value = (x.detach().to("meta") for x in (call.query, call.key, call.value))
    mask = call.mask.detach() if call.mask is not None else None
    weights = call.weights.detach().to("meta") if call.weights is not None else None
    return replace(
        call, query=query, key=key, value=value, mask=mask, weights=weights, position_bias=None, arguments=None
    )


def _is_projection_like(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 2 and not isinstance(module, nn.Embedding)


def sites_of(model: nn.Module, probe: Probe, batch: Batch) -> list[Site]:
    """Sites of a recorded pass, with kind and layer measured from shapes, masks and module names."""
    names = {id(module): name for name, module in model.named_modules()}
    sites = []
    for index, call in enumerate(probe.calls):
        module, number, direct = probe.projections.get(index, (None, 0, False))
        value_dim = call.value.shape[-1]
        if call.weights is not None:
            value_dim = probe.entering.get(index, (0,))[-1] // call.n_heads
        sites.append(
            Site(
                kind=_kind(call, batch),
                layer=-1,
                name=names[id(call.module)],
                module=call.module,
                call=probe.numbers[index],
                calls_per_pass=probe.calls_per_pass[id(call.module)],
                n_heads=call.n_heads,
                n_kv_heads=call.key.shape[1],
                head_dim=call.query.shape[-1],
                value_dim=value_dim,
                causal=_is_causal(call),
                over_tokens=_is_over_tokens(call, batch),
                projection=module,
                projection_name=names.get(id(module), ""),
                projection_call=number,
                direct=direct,
                tokens_first=_tokens_first(call, probe.entering.get(index), batch),
            )
        )
    return _with_layers(sites)


def _tokens_first(call: AttentionCall, entering: torch.Size | None, batch: Batch) -> bool:
    """Whether a projection's input is (token, batch, width)."""
    return entering is not None and entering[:-1] == (call.query.shape[2], len(batch)) and entering[0] != len(batch)


def _kind(call: AttentionCall, batch: Batch) -> str:
    """Encoder, decoder or cross; the probe's source and target differ in length so that shapes tell them apart."""
    if batch.target is None:
        return "decoder" if _is_causal(call) else "encoder"
    source, target = batch.source.ids.shape[1], batch.target.ids.shape[1]
    queries, keys = call.query.shape[2], call.key.shape[2]
    if queries == target and keys == source:
        return "cross"
    return "decoder" if queries == target else "encoder"


def _is_over_tokens(call: AttentionCall, batch: Batch) -> bool:
    """Whether queries and keys are as many as the tokens; patches, memories and compressed keys are not."""
    source = batch.source.ids.shape[1]
    target = source if batch.target is None else batch.target.ids.shape[1]
    return (call.query.shape[2], call.key.shape[2]) in {(source, source), (target, target), (target, source)}


def _is_causal(call: AttentionCall) -> bool:
    """Whether no query of the probe sees a later key."""
    if call.mask is None:
        return call.causal
    return not bool(torch.triu(visible_keys(call.mask), 1).any())


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
    return sorted(result, key=lambda s: (KINDS.index(s.kind), s.layer, order[id(s.module)]))
