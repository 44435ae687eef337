"""Attention sites: the layers of a model that hold heads, and how two of its outputs are compared."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headlab.attention.reach.call import Handler
from headlab.base.errors import ProofError, UnsupportedModelError
from headlab.base.masks import LayerKey
from headlab.models.texts.batch import Batch

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
    calls_per_pass: int
    n_heads: int
    n_kv_heads: int
    head_dim: int  # width of a query or key; 0 where only the attention itself is seen
    value_dim: int  # width of a head's output
    causal: bool
    over_tokens: bool = True  # queries and keys are the tokens of the text, one by one
    projection: nn.Module | None = None
    projection_name: str = ""
    projection_call: int = 0
    direct: bool = False  # the projection's input is the attention output itself, head beside head
    tokens_first: bool = False  # the projection's input is (token, batch, width)
    seen: bool = True  # its attention is shown; where not, heads can only be gated

    @property
    def key(self) -> LayerKey:
        return self.kind, self.layer

    def weight(self) -> Tensor | None:
        """The projection's weight as (head, value_dim, model width); None where it is not one matrix.

        Other classes than Linear need not multiply by their `weight` as it stands: a LoRA layer adds to it.
        """
        if not isinstance(self.projection, (nn.Linear, Conv1D)):
            return None
        weight = self.projection.weight
        if not isinstance(weight, Tensor) or weight.dim() != 2 or weight.is_meta or not weight.is_floating_point():
            return None
        rows = weight if isinstance(self.projection, Conv1D) else weight.T
        if rows.shape[0] != self.n_heads * self.value_dim:
            return None
        return rows.detach().reshape(self.n_heads, self.value_dim, -1)


Edit = Callable[[Site, Tensor], Tensor | None]
Engage = Callable[[nn.Module, Handler], contextlib.AbstractContextManager[None]]


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


def require_seen(keys: Iterable[LayerKey], seen: Container[LayerKey]) -> None:
    """Raise ProofError where a pass went by without one of these layers being seen."""
    missed = next((key for key in keys if key not in seen), None)
    if missed is not None:
        cause = f"A pass went by without {missed[0]} layer {missed[1]} being seen."
        raise ProofError(cause, "Nothing measured in it counts; does something change the model while it runs?")


def run(model: nn.Module, batch: Batch, **arguments: Any) -> Any:
    """The model's forward pass on a batch."""
    return model(**batch.inputs, **arguments)


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
