"""Everything about a model that headlab must leave as it found it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_state_dict_hooks",
)


def state_of(model: nn.Module) -> dict[str, Any]:
    """A snapshot that compares equal only if nothing has changed, weights bit for bit."""
    configs = {id(m.config): m.config for m in model.modules() if getattr(m, "config", None) is not None}
    return {
        "weights": {name: value.clone().numpy().tobytes() for name, value in model.state_dict().items()},
        "training": {name: module.training for name, module in model.named_modules()},
        "requires_grad": {name: p.requires_grad for name, p in model.named_parameters()},
        "gradients": {name: p.grad is None for name, p in model.named_parameters()},
        "hooks": {name: [list(getattr(m, hook, ())) for hook in _HOOKS] for name, m in model.named_modules()},
        "attributes": {name: sorted(m.__dict__) for name, m in model.named_modules()},
        "forwards": {name: m.forward for name, m in model.named_modules()},
        "implementation": [(i, c._attn_implementation, c._attn_implementation_internal) for i, c in configs.items()],
        "config": [c.to_dict() for c in configs.values()],
        "random": (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()),
        "gradients are on": torch.is_grad_enabled(),
    }
