"""How a model runs while headlab looks at it: its attention implementation, compiled code, hooks; all put back."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

_changed: dict[int, tuple[int, Any]] = {}  # by id of a configuration: how many use it now, its own implementation
_uncompiled = 0  # in how many places compiled code is not to run
_stances: list[Any] = []  # what puts torch's own setting back
_lock = threading.Lock()


@contextlib.contextmanager
def hooked(hooks: Iterable[RemovableHandle]) -> Iterator[None]:
    """Inside, these hooks are there; afterwards they are taken away."""
    handles = list(hooks)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def replaced_forwards(forwards: dict[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Inside, each module's forward is another function; what stood there is put back."""
    before = {module: vars(module).get("forward") for module in forwards}
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        for module, own in before.items():
            if own is None:
                vars(module).pop("forward", None)
            else:
                vars(module)["forward"] = own


def configurations(model: nn.Module) -> list[Any]:
    """Every distinct configuration object in the model that carries an attention implementation."""
    distinct: dict[int, Any] = {}
    waiting = [config for module in model.modules() if (config := getattr(module, "config", None)) is not None]
    while waiting:
        config = waiting.pop()
        if id(config) in distinct or not hasattr(config, "_attn_implementation_internal"):
            continue
        distinct[id(config)] = config
        waiting += [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
    return list(distinct.values())


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
