"""What the checks of all plugins share: a rule is a sentence that must be true, and models are left as found."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import nn

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_:.-]*")


def require(truth: Any, sentence: str) -> None:
    """Raise AssertionError with the sentence unless it is true."""
    if not truth:
        raise AssertionError(sentence)


def require_facts(plugin: Any, noun: str, facts: Sequence[str] = ("definition", "source")) -> None:
    """Name, title, one sentence of text, and the facts that a kind of plugin carries besides."""
    name = getattr(plugin, "name", None)
    require(
        isinstance(name, str) and NAME.fullmatch(name), f"The {noun} has no name of letters, digits, _ and -: {name!r}."
    )
    for fact in ("title", "text", *facts):
        value = getattr(plugin, fact, None)
        require(isinstance(value, str) and value.strip(), f"The {noun} {name} has no {fact}.")
    require(
        plugin.text.rstrip().endswith((".", "?")),
        f"The text of the {noun} {name} is no sentence: it ends without a full stop.",
    )


def require_alike(found: Any, expected: Any, sentence: str, tolerance: float = 0.0) -> None:
    """The same numbers, NaN where NaN is, within a relative tolerance."""
    found, expected = (np.asarray(values, dtype=np.float64) for values in (found, expected))
    alike = found.shape == expected.shape and np.allclose(
        found, expected, rtol=tolerance, atol=tolerance / 100, equal_nan=True
    )
    require(alike, sentence)


@contextlib.contextmanager
def errors_told(who: str) -> Iterator[None]:
    """Turn whatever error a plugin ends with into an AssertionError that names the plugin."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{who} ends with {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def left_as_found(model: nn.Module, who: str) -> Iterator[None]:
    """Raise AssertionError unless weights, training flags, gradients and hooks are the same afterwards."""
    before = _state(model)
    yield
    after = _state(model)
    for part, value in before.items():
        require(after[part] == value, f"The {who} does not leave the model as it found it: {part} differ.")


def _state(model: nn.Module) -> dict[str, Any]:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "weights": [value.detach().cpu().numpy().tobytes() for value in model.state_dict().values()],
        "training flags": [module.training for module in model.modules()],
        "gradients": [(parameter.requires_grad, parameter.grad is None) for parameter in model.parameters()],
        "hooks": [list(getattr(module, name)) for module in model.modules() for name in hooks],
    }
