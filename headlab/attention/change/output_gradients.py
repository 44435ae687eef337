"""How a loss depends on what heads hand to their output projections: slices z_h and d loss / d z_h, token by token."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from headlab.attention.reach.projections import edits_at_projections, per_head, scaling_by
from headlab.attention.reach.sites import Site
from headlab.base.errors import UnsupportedModelError
from headlab.models.state import evaluating, frozen
from headlab.models.texts.batch import Batch, Tokens

if TYPE_CHECKING:
    from headlab.attention.heads import Heads

Loss = Callable[[nn.Module, Batch], Tensor]
Key = tuple[str, int]


def slopes_of(losses: Tensor, at: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of losses; UnsupportedModelError where it has none at all."""
    found: tuple[Tensor | None, ...] = ()
    if losses.requires_grad:
        found = torch.autograd.grad(losses.sum(), list(at), allow_unused=True)
    if all(slope is None for slope in found):
        raise UnsupportedModelError("The loss has no gradient with respect to the heads: the model or the task cuts it "
                                    "off (no_grad, detach, integers).",
                                    "Use a score that needs none, such as ablation.")  # fmt: skip
    return found


def query_tokens(batch: Batch, kind: str) -> Tokens:
    """The tokens on the query side of a kind of attention."""
    return batch.source if batch.target is None or kind == "encoder" else batch.target


def key_tokens(batch: Batch, kind: str) -> Tokens:
    """The tokens on the key side of a kind of attention."""
    return batch.source if batch.target is None or kind in ("encoder", "cross") else batch.target


def require_projections(heads: Heads, what: str) -> None:
    """Raise UnsupportedModelError unless every layer hands its heads to one output projection."""
    heads.need_gates(what)
    without = next((site for site in heads.sites if site.projection is None), None)
    if without is not None:
        raise UnsupportedModelError(f"{without.name} has no single output projection whose input could be read.",
                                    "Use another score with this model, such as gradient or ablation.")  # fmt: skip


def output_slopes(
    heads: Heads,
    batch: Batch,
    loss: Loss,
    *,
    gates: Mapping[Key, Tensor] | None = None,
    inside: Callable[[nn.Module], contextlib.AbstractContextManager] = lambda model: contextlib.nullcontext(),
) -> dict[Key, tuple[Tensor, Tensor]]:
    """(z, d loss / d z) of every layer, each (row, token, head, value_dim), from one forward and one backward pass.

    `gates` scale heads before they are read; `inside(model)` is entered around the forward pass. The losses of the
    batch are summed. Call require_projections first.
    """
    leaves: dict[Key, Tensor] = {}
    values: dict[Key, Tensor] = {}
    scale = scaling_by(dict(gates or {}))

    def read(site: Site, entering: Tensor) -> Tensor:
        scaled = scale(site, entering)
        scaled = entering if scaled is None else scaled
        values[site.key] = scaled.detach()
        leaves[site.key] = torch.zeros_like(scaled, requires_grad=True)
        return scaled + leaves[site.key]

    model, here = heads.model, batch.to(heads.device).clone()
    with (
        torch.inference_mode(False), torch.enable_grad(), evaluating(model), frozen(model),
        edits_at_projections(model, heads.sites, read), inside(model),
    ):  # fmt: skip
        found = slopes_of(loss(model, here), list(leaves.values()))
    sites = {site.key: site for site in heads.sites}
    result = {}
    for (key, leaf), slope in zip(leaves.items(), found, strict=True):
        shape = (*query_tokens(here, key[0]).ids.shape, sites[key].n_heads, sites[key].value_dim)
        slope = torch.zeros_like(leaf) if slope is None else slope
        result[key] = per_head(values[key], sites[key]).reshape(shape), per_head(slope, sites[key]).reshape(shape)
    return result
