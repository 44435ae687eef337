"""The one place where transformers hands a layer's queries, keys and values to headlab.

transformers v5 looks attention functions up by name. headlab registers one under `headlab`, together with a mask
function under the same name: without the latter, transformers passes no mask at all and padding is silently lost.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "headlab"


@dataclass(frozen=True)
class AttentionCall:
    """One call of the attention function: what a layer computed, before any weight exists.

    Shapes: query (batch, head, query, dim), key (batch, kv_head, key, dim), value (batch, kv_head, key, value_dim);
    mask is None, boolean (True = visible) or additive, broadcastable to (batch, head, query, key).
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scaling: float
    causal: bool  # without a mask: may a query see later keys?
    position_bias: Tensor | None = None  # added to the scores (T5)
    sink_logits: Tensor | None = None  # (head,), one more logit in the denominator (GPT-OSS)
    softcap: float | None = None  # scores become softcap * tanh(scores / softcap) (Gemma 2)
    weights: Tensor | None = None  # known by its attention (batch, head, query, key) alone; the others hold shapes
    arguments: dict[str, Any] | None = None  # everything as it was passed, for the model's own eager function

    @property
    def n_heads(self) -> int:
        return self.query.shape[1]


# Returns the output (batch, query, head, value_dim), or the attention of a call known by its weights alone; None where
# the call is no attention of a known layer.
Handler = Callable[[AttentionCall], Tensor | None]

_handlers: dict[int, Handler] = {}  # by id of the attention module
_changed: dict[int, tuple[int, Any]] = {}  # by id of a configuration: how many use it now, its own implementation
_uncompiled = 0  # in how many places compiled code is not to run
_stances: list[Any] = []  # what puts torch's own setting back
_lock = threading.Lock()


def _headlab_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None, **arguments: Any
) -> tuple[Tensor, None]:
    call = _read_call(module, query, key, value, attention_mask, arguments)
    handler = _handlers.get(id(module))
    if handler is None:  # another model with the same configuration object is being observed
        from headlab.attention.reach.blocks import attend

        return attend(call), None
    output = handler(call)
    if output is None:
        raise RuntimeError(f"{type(module).__name__} calls attention that the probe did not see.")
    return output, None


def _read_call(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, arguments: dict[str, Any]
) -> AttentionCall:
    is_causal = arguments.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    scaling = arguments.get("scaling")
    queries = query.shape[2]
    causal = mask is None and bool(is_causal) and queries > 1
    if causal and key.shape[2] > queries:
        # The first pass into a static cache: keys beyond the queries are empty slots, exactly as for stock SDPA.
        key, value = key[:, :, :queries], value[:, :, :queries]
    return AttentionCall(
        module=module,
        query=query,
        key=key,
        value=value,
        mask=mask,
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        causal=causal,
        position_bias=arguments.get("position_bias"),
        sink_logits=arguments.get("s_aux"),
        softcap=arguments.get("softcap"),
        arguments=arguments,
    )


def _headlab_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """The mask that stock SDPA would get: none where causality says it all, else boolean, True = visible."""
    return sdpa_mask(*args, **kwargs)


AttentionInterface.register(NAME, _headlab_attention)
AttentionMaskInterface.register(NAME, _headlab_mask)


def configurations(model: nn.Module) -> list[Any]:
    """Every distinct configuration object in the model that carries an attention implementation."""
    found: dict[int, Any] = {}
    waiting = [config for module in model.modules() if (config := getattr(module, "config", None)) is not None]
    while waiting:
        config = waiting.pop()
        if id(config) in found or not hasattr(config, "_attn_implementation_internal"):
            continue
        found[id(config)] = config
        waiting += [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
    return list(found.values())


@contextlib.contextmanager
def implementation(model: nn.Module, name: str) -> Iterator[None]:
    """Run the model under another attention implementation and put every configuration back afterwards.

    Models may share a configuration: the first to change it notes what it was, the last to leave puts that back.
    """
    changed = configurations(model)
    with _lock:
        for config in changed:
            users, before = _changed.get(id(config), (0, config._attn_implementation_internal))
            _changed[id(config)] = (users + 1, before)
            config._attn_implementation_internal = name
    try:
        yield
    finally:
        with _lock:
            for config in changed:
                users, before = _changed.pop(id(config))
                if users > 1:
                    _changed[id(config)] = (users - 1, before)
                else:
                    config._attn_implementation_internal = before


@contextlib.contextmanager
def engaged(model: nn.Module, handler: Handler) -> Iterator[None]:
    """Inside, every attention call of this model goes to `handler`; afterwards the model is as it was found."""
    modules = [id(module) for module in model.modules()]
    with _lock:
        if any(key in _handlers for key in modules):
            raise RuntimeError("The model is already being observed; finish that first.")
        _handlers.update(dict.fromkeys(modules, handler))
    try:
        with uncompiled(), implementation(model, NAME):
            yield
    finally:
        with _lock:
            for key in modules:
                _handlers.pop(key, None)


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Inside, what torch.compile has compiled runs as plain Python: compiled code heeds no hook that comes later.

    Compiled code is kept and used again afterwards. The switch is torch's own and one for all threads.
    """
    global _uncompiled
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled
        yield
        return
    with _lock:
        if not _uncompiled:
            _stances.append(torch.compiler.set_stance("force_eager"))
        _uncompiled += 1
    try:
        yield
    finally:
        with _lock:
            _uncompiled -= 1
            if not _uncompiled:
                _stances.pop().__exit__(None, None, None)


@contextlib.contextmanager
def no_new_hooks(model: nn.Module) -> Iterator[None]:
    """Take away the forward hooks that transformers installs for good when it is first asked for attention maps."""
    flag = "_output_capturing_hooks_installed"
    before = [(module, set(module._forward_hooks), flag in vars(module)) for module in model.modules()]
    try:
        yield
    finally:
        for module, known, flagged in before:
            for key in set(module._forward_hooks) - known:
                del module._forward_hooks[key]
            if not flagged:
                vars(module).pop(flag, None)


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; each module's own training flag is put back afterwards."""
    saved = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in saved:
            module.training = training


@contextlib.contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter asks for a gradient inside; each parameter's own flag is put back afterwards."""
    saved = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        for parameter, _ in saved:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter, flag in saved:
            parameter.requires_grad_(flag)


def own_eager_function(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The eager attention function of the file that defines this module, where it has one."""
    for cls in type(module).__mro__:
        function = getattr(sys.modules.get(cls.__module__), "eager_attention_forward", None)
        if function is not None:
            return function
    return None


def additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A boolean mask as the additive one that eager functions expect."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
