"""torch.nn.MultiheadAttention made visible: its attention as one plain call, its output projection as a module.

By itself it hands its weights to fused kernels, or to one function that never calls the projection as a module, and
TransformerEncoder packs padded batches for such kernels. Inside `opened`, none of this happens.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from headlab.base.errors import UnsupportedModelError

_users: dict[int, int] = {}  # by id of a module: how many contexts it is open in
_lock = threading.Lock()


def multihead_modules(model: nn.Module) -> list[nn.MultiheadAttention]:
    """The model's attention modules that run torch's own code."""
    forward = nn.MultiheadAttention.forward
    return [m for m in model.modules() if isinstance(m, nn.MultiheadAttention) and type(m).forward is forward]


@contextlib.contextmanager
def opened(model: nn.Module) -> Iterator[None]:
    """Inside, every MultiheadAttention of the model runs `attention`; afterwards all modules are as they were found.

    Contexts may be nested, for one model or for several that share modules. Raises UnsupportedModelError for a module
    with a key that belongs to no token.
    """
    modules = multihead_modules(model)
    for module in modules:
        if module.bias_k is not None or module.add_zero_attn:
            raise UnsupportedModelError(
                "A MultiheadAttention of the model has a key that is no token (add_bias_kv or add_zero_attn).",
                "headlab shows attention between tokens only.",
            )
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(_replaced(module, *_forward_of(module)))
        if modules:
            for encoder in (m for m in model.modules() if isinstance(m, nn.TransformerEncoder)):
                stack.enter_context(_replaced(encoder, "use_nested_tensor", False))
            for module in modules:  # a hook on any of its modules keeps TransformerEncoderLayer from its fused kernel
                stack.callback(module.register_forward_pre_hook(lambda *_: None).remove)
        yield


def _forward_of(module: nn.MultiheadAttention) -> tuple[str, Any]:
    # accelerate wraps `forward` to bring the weights, and calls what it found as `_old_forward`
    name = "_old_forward" if "_old_forward" in vars(module) else "forward"
    return name, functools.partial(attention, module)


@contextlib.contextmanager
def _replaced(module: nn.Module, name: str, value: object) -> Iterator[None]:
    """Set an attribute in the module's own dictionary for as long as anyone wants it."""
    place = vars(module)
    with _lock:
        first = _users.get(id(module), 0) == 0
        _users[id(module)] = _users.get(id(module), 0) + 1
        if first:
            _found[id(module)] = (name in place, place.get(name))
            place[name] = value
    try:
        yield
    finally:
        with _lock:
            _users[id(module)] -= 1
            if not _users[id(module)]:
                del _users[id(module)]
                own, before = _found.pop(id(module))
                if own:
                    place[name] = before
                else:
                    del place[name]


_found: dict[int, tuple[bool, Any]] = {}  # by id of a module: whether it had the attribute itself, and its value


def attention(
    self: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What MultiheadAttention.forward returns for these arguments; `self` is named so that the tap finds the module."""
    batched = query.dim() == 3
    if not batched:
        query, key, value = (x.unsqueeze(0) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    elif not self.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    queries, keys, values = _projected(self, query, key, value)  # (batch, head, token, head width)
    mask = _mask(attn_mask, key_padding_mask, queries)
    weights = _weights(queries, keys, mask) if need_weights else None
    dropout = self.dropout if self.training else 0.0
    if weights is not None and dropout:
        weights = functional.dropout(weights, dropout)  # so does torch: what it returns is what it used
        mixed = weights @ values
    else:
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, dropout_p=dropout)
    output = self.out_proj(mixed.transpose(1, 2).flatten(2))
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if not batched:
        return output.squeeze(0), None if weights is None else weights.squeeze(0)
    return output if self.batch_first else output.transpose(0, 1), weights


def _projected(module: nn.MultiheadAttention, *inputs: Tensor) -> list[Tensor]:
    if module.in_proj_weight is not None:
        matrices = module.in_proj_weight.chunk(3)
    else:
        matrices = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return [
        functional.linear(x, matrix, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for x, matrix, bias in zip(inputs, matrices, biases, strict=True)
    ]


def _mask(attn_mask: Tensor | None, padding: Tensor | None, queries: Tensor) -> Tensor | None:
    """Both masks as one: boolean with True = visible where both are boolean, else additive."""
    masks = []
    if attn_mask is not None:
        by_head = attn_mask.dim() == 3  # (batch * head, query, key)
        shape = (*queries.shape[:2], *attn_mask.shape[1:]) if by_head else (1, 1, *attn_mask.shape)
        masks.append(attn_mask.view(shape))
    if padding is not None:
        masks.append(padding[:, None, None])
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        return ~functools.reduce(torch.logical_or, masks)
    return functools.reduce(torch.add, [_additive(mask, queries.dtype) for mask in masks])


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, float("-inf"))


def _weights(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """The attention (batch, head, query, key), without a softmax for the tap to take for another layer."""
    scores = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()
