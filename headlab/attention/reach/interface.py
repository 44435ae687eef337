"""The one place where transformers hands a layer's queries, keys and values to headlab.

transformers v5 looks attention functions up by name. headlab registers one under `headlab`, together with a mask
function under the same name: without the latter, transformers passes no mask at all and padding is silently lost.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from headlab.attention.reach.blocks import attend
from headlab.attention.reach.call import AttentionCall, Handler
from headlab.attention.reach.state import implementation, uncompiled

NAME = "headlab"

_handlers: dict[int, Handler] = {}  # by id of the attention module
_lock = threading.Lock()


def _headlab_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None, **arguments: Any
) -> tuple[Tensor, None]:
    call = _read_call(module, query, key, value, attention_mask, arguments)
    handler = _handlers.get(id(module))
    if handler is None:  # another model with the same configuration object is being observed
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
