"""How a loss depends on what heads hand to their output projections: slices z_h and d loss / d z_h, token by token."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from headlab.attention.reach.projections import Gates, per_token, scaling_by
from headlab.attention.reach.sites import Site
from headlab.attention.subject import Subject
from headlab.base.errors import UnsupportedModelError
from headlab.base.masks import LayerKey
from headlab.models.state import evaluating, frozen
from headlab.models.texts.batch import Batch, Loss


def slopes_of(losses: Tensor, at: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of losses, None where it does not depend on a tensor.

    Raises UnsupportedModelError where it depends on none of them.
    """
    slopes: tuple[Tensor | None, ...] = ()
    if losses.requires_grad:
        slopes = torch.autograd.grad(losses.sum(), list(at), allow_unused=True)
    if all(slope is None for slope in slopes):
        raise UnsupportedModelError(
            "The loss has no gradient with respect to the heads: the model or the task cuts it off (no_grad, detach, "
            "integers).",
            "Use a score that needs none, such as ablation.",
        )
    return slopes


def output_slopes(
    subject: Subject,
    batch: Batch,
    loss: Loss,
    *,
    gates: Gates | None = None,
    inside: Callable[[nn.Module], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> dict[LayerKey, tuple[Tensor, Tensor]]:
    """(z, d loss / d z) of every layer, each (batch, token, head, value_dim), from one forward and one backward pass.

    Layers are in the order of `subject.sites`, as in every table. `gates` scale heads before they are read;
    `inside(model)` is entered around the forward pass. The losses of the batch are summed. Call
    subject.need_projections first.
    """
    leaves: dict[LayerKey, Tensor] = {}
    values: dict[LayerKey, Tensor] = {}
    scale = scaling_by(gates or {})

    def read(site: Site, entering: Tensor) -> Tensor:
        scaled = scale(site, entering)
        scaled = entering if scaled is None else scaled
        values[site.key] = scaled.detach()
        leaves[site.key] = torch.zeros_like(scaled, requires_grad=True)
        return scaled + leaves[site.key]

    model, batch = subject.module, batch.to(subject.device).clone()
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        evaluating(model),
        frozen(model),
        subject.edited(read),
        inside(model),
    ):
        slopes = dict(zip(leaves, slopes_of(loss(model, batch), list(leaves.values())), strict=True))
    both = {}
    # The pass has an order of its own: in it decoder and cross-attention take turns.
    for site in (site for site in subject.sites if site.key in leaves):
        tokens, slope = batch.queries(site.kind), slopes[site.key]
        slope = torch.zeros_like(leaves[site.key]) if slope is None else slope
        both[site.key] = per_token(values[site.key], site, tokens), per_token(slope, site, tokens)
    return both
