"""Rules of relevance propagation on any model: inside, gradient times input is relevance.

Linear layers, residual sums and the mixing of values pass on what their terms contributed (w u / sum w u, the rule of
Voita et al. 2019), which is what gradient times input does by itself. The rest is made linear at the point where it
stands: attention weights are constants, a normalisation divides by a constant, an activation multiplies by the
constant f(x) / x, a product of two activations gives each half. Without biases and position embeddings added later
the sum is then the same at every depth; biases take their share and keep it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headlab.attention.reach.state import hooked, replaced_forwards, uncompiled

_SOFTMAX = {functional.softmax, torch.softmax, Tensor.softmax, torch.special.softmax}
_ATTENTION = functional.scaled_dot_product_attention
_PRODUCTS = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.multiply, Tensor.multiply}
_QUOTIENTS = {torch.div, Tensor.div, Tensor.__truediv__, torch.true_divide, Tensor.true_divide}
_CONSTANT = {torch.rsqrt, Tensor.rsqrt}  # of RMS norms
_ELEMENTWISE = {
    torch.relu,
    Tensor.relu,
    functional.relu,
    functional.gelu,
    functional.silu,
    torch.tanh,
    Tensor.tanh,
    functional.tanh,
    torch.sigmoid,
    Tensor.sigmoid,
    functional.sigmoid,
    functional.leaky_relu,
    functional.elu,
    functional.softplus,
    functional.mish,
    functional.relu6,
    functional.hardswish,
}
_POWERS = {torch.pow, Tensor.pow, Tensor.__pow__}


class _Rules(TorchFunctionMode):
    """Replaces what is not linear by the linear map that it is at this point; values stay what they are."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function in _SOFTMAX or function in _CONSTANT:
            return function(*args, **kwargs).detach()
        if function is _ATTENTION:
            query, key, *rest = args
            return function(query.detach(), key.detach(), *rest, **kwargs)
        if function in _PRODUCTS and _both_vary(args):
            a, b = args
            return (a * b.detach() + a.detach() * b) / 2
        if function in _QUOTIENTS and _both_vary(args):
            return args[0] / args[1].detach()
        if function in _POWERS and isinstance(args[1], (int, float)) and args[1] < 0:
            return function(*args, **kwargs).detach()
        if function is functional.layer_norm:
            return _layer_norm(*args, **kwargs)
        if function is functional.rms_norm:
            return _rescaled(args[0], function(*args, **kwargs))
        if function in _ELEMENTWISE:
            return _rescaled(args[0], function(*args, **kwargs))
        return function(*args, **kwargs)


def _both_vary(args: tuple) -> bool:
    return len(args) == 2 and all(isinstance(x, Tensor) and x.requires_grad for x in args)


def _rescaled(x: Tensor, y: Tensor) -> Tensor:
    """Y as a constant times x, element by element; where x is 0 nothing passes."""
    factor = torch.where(x == 0, 0, y / torch.where(x == 0, 1, x)).detach()
    return x * factor + (y - x * factor).detach()


def _layer_norm(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    dims = tuple(range(-len(shape), 0))
    centred = x - x.mean(dims, keepdim=True)
    spread = (x.var(dims, unbiased=False, keepdim=True) + eps).sqrt().detach()
    out = centred / spread
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


@contextlib.contextmanager
def relevance_rules(model: nn.Module) -> Iterator[None]:
    """Inside, the model's forward pass follows the rules; what is computed from its output (a loss) does not."""
    plain = model.forward

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        with _Rules():
            return plain(*args, **kwargs)

    activations = [module for module in model.modules() if _is_activation(module)]
    hooks = [m.register_forward_hook(lambda m, args, y: _rescaled(args[0], y)) for m in activations]
    with hooked(hooks), replaced_forwards({model: forward}), uncompiled():
        yield


def _is_activation(module: nn.Module) -> bool:
    """An activation function as a module, such as GELU written out as a formula of its own."""
    if next(module.parameters(), None) is not None or isinstance(module, (nn.Softmax, nn.LogSoftmax)):
        return False
    return type(module).__module__ in ("transformers.activations", "torch.nn.modules.activation")
