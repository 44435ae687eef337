"""Second way to see attention: for models that do not look attention functions up by name but compute it themselves.

A torch function mode watches calls of softmax and of scaled_dot_product_attention while the model runs. A softmax
result of shape (batch, head, query, key) is a layer's attention; scaled_dot_product_attention is replaced by
headlab's blocks.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headlab.attention.reach.call import AttentionCall, Handler
from headlab.attention.reach.multihead import opened
from headlab.attention.reach.state import hooked, uncompiled

_SOFTMAX = {functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax}
_SDPA = functional.scaled_dot_product_attention
# Whole attention layers inside one function, where nothing can be seen.
_CLOSED = {
    functional.multi_head_attention_forward,
    torch._native_multi_head_attention,
    torch._transformer_encoder_layer_fwd,
}


def running_module(known: Container[int]) -> nn.Module | None:
    """The innermost of the modules with these ids whose code is calling."""
    frame = sys._getframe(2)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in known:
            return owner
        frame = frame.f_back  # type: ignore[assignment]
    return None


class _Tap(TorchFunctionMode):
    """Hands each softmax and attention call to `handler`; what that returns takes the result's place."""

    def __init__(self, model: nn.Module, handler: Handler, batch_size: Callable[[], int]) -> None:
        super().__init__()
        self.modules = {id(module) for module in model.modules()}
        self.handler = handler
        self.batch_size = batch_size
        self.busy = False  # while headlab itself computes

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function in _CLOSED and not self.busy:
            raise RuntimeError(f"{function.__name__} computes attention where it cannot be seen")
        if self.busy or (function not in _SOFTMAX and function is not _SDPA):
            return function(*args, **kwargs)
        module = running_module(self.modules)
        if module is None:
            return function(*args, **kwargs)
        if function is _SDPA:
            return self._attention(module, function, args, kwargs)
        return self._softmax(module, function(*args, **kwargs))

    def _softmax(self, module: nn.Module, weights: Any) -> Any:
        if not isinstance(weights, Tensor) or not weights.is_floating_point() or weights.dim() not in (3, 4):
            return weights
        batch = self.batch_size()
        if weights.dim() == 3 and weights.shape[0] % batch:
            return weights
        by_head = weights if weights.dim() == 4 else weights.view(batch, -1, *weights.shape[1:])
        result = self._ask(weights_call(module, by_head))
        return weights if result is None else result.to(weights.dtype).view(weights.shape)

    def _attention(self, module: nn.Module, function: Any, args: tuple, kwargs: dict) -> Any:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        inputs = dict(zip(names, args, strict=False)) | kwargs
        query, key, mask = inputs["query"], inputs["key"], inputs.get("attn_mask")
        if query.dim() != 4:
            return function(*args, **kwargs)
        if mask is not None and mask.dim() < 4:
            mask = mask.view(*[1] * (4 - mask.dim()), *mask.shape)
        scale = inputs.get("scale")
        call = AttentionCall(
            module,
            query,
            key,
            inputs["value"],
            mask,
            scaling=query.shape[-1] ** -0.5 if scale is None else scale,
            causal=bool(inputs.get("is_causal", False)) and query.shape[2] > 1,
        )
        result = self._ask(call)
        return function(*args, **kwargs) if result is None else result.transpose(1, 2)

    def _ask(self, call: AttentionCall) -> Tensor | None:
        self.busy = True
        try:
            return self.handler(call)
        finally:
            self.busy = False


class _Strays(TorchFunctionMode):
    """Notes the modules that compute attention themselves while the handler is not at work."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {id(module): name for name, module in model.named_modules()}
        self.busy = False
        self.claimed = False  # the handler knew the call that has just been made
        self.names_met: dict[str, None] = {}  # in the order in which they were met

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.claimed = False
        result = function(*args, **(kwargs or {}))
        wide = function is _SDPA or (function in _SOFTMAX and isinstance(result, Tensor) and result.dim() >= 4)
        if wide and not self.busy and not self.claimed:
            module = running_module(self.names)
            if module is not None:
                self.names_met[self.names[id(module)]] = None
        return result


def attention_beside(model: nn.Module, handler: Handler, engage: Any, run: Callable[[], object]) -> tuple[str, ...]:
    """Names of the modules that compute attention by themselves while `handler` is engaged: layers it does not see."""
    strays = _Strays(model)

    def noted(call: AttentionCall) -> Tensor | None:
        strays.busy = True
        try:
            output = handler(call)
        finally:
            strays.busy = False
        strays.claimed = output is not None
        return output

    with engage(model, noted), strays:
        run()
    return tuple(strays.names_met)


def weights_call(module: nn.Module, weights: Tensor) -> AttentionCall:
    """An attention call known by its weights (batch, head, query, key) alone; a key no head looks at is masked."""
    batch, heads, queries, keys = weights.shape
    query, key = (torch.empty(batch, heads, length, 0, device="meta") for length in (queries, keys))
    visible = _visible(weights > 0)
    return AttentionCall(module, query, key, key, visible, scaling=1.0, causal=False, weights=weights)


def _visible(looked: Tensor) -> Tensor:
    """Which keys could be looked at, (batch, 1, query, key), from which were, (batch, head, query, key).

    A weight may be exactly 0 by underflow. So a key counts as masked only where no query of the text looks at it
    (padding), or where nobody looks at its offset (the future, what lies beyond a window).
    """
    queries, keys = looked.shape[2:]
    keys_seen = looked.flatten(1, 2).any(1)
    offset = (
        torch.arange(keys, device=looked.device) - torch.arange(queries, device=looked.device)[:, None] + queries - 1
    )
    seen = looked.flatten(0, 1).any(0)
    offsets_seen = torch.zeros(queries + keys - 1, dtype=torch.bool, device=looked.device)
    offsets_seen[offset[seen]] = True
    visible = keys_seen[:, None] & offsets_seen[offset]
    looked_at = looked.any(1)
    # Many keys that nobody looks at are no underflow but a mask of another pattern: a choice of keys for each query.
    chosen = (visible & ~looked_at).sum() > 0.1 * visible.sum()
    return (looked_at if chosen else visible)[:, None]


@contextlib.contextmanager
def tapped(model: nn.Module, handler: Handler) -> Iterator[None]:
    """Inside, every softmax over (batch, head, query, key)-like shapes and every fused attention goes to `handler`.

    The handler returns None for those that are no attention of a known layer. The model keeps its own implementation,
    and with it the masks that it makes for itself.
    """
    rows = [1]

    def note_batch(module: nn.Module, arguments: tuple, named: dict) -> None:
        tensors = [value for value in (*arguments, *named.values()) if isinstance(value, Tensor) and value.dim() > 0]
        if tensors:
            rows[0] = tensors[0].shape[0]

    entrances = {id(m): m for m in (model, getattr(model, "base_model", model))}  # either may be called
    hooks = [m.register_forward_pre_hook(note_batch, with_kwargs=True, prepend=True) for m in entrances.values()]
    with hooked(hooks), uncompiled(), opened(model), _Tap(model, handler, lambda: rows[0]):
        yield
