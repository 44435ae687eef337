"""What removed heads give on average, folded into the bias of their projection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headlab.base.errors import UnsupportedModelError

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.base.masks import HeadMask

Means = Mapping[tuple[str, int], Tensor]


def folded_biases(heads: Heads, mask: HeadMask, means: Means) -> dict[tuple[str, int], Tensor]:
    """What to add to each projection's bias, (model width,): the sum over removed heads of mean_h W_h.

    `means` are those of `heads.mean_outputs`. Raises UnsupportedModelError where a projection is not one matrix.
    """
    found = {}
    for site in heads.sites:
        gone = ~torch.from_numpy(mask[site.key].copy())
        if not gone.any():
            continue
        weight = site.weight()
        if weight is None:
            raise UnsupportedModelError(
                f"{site.name} has no single matrix as its projection, hence no such bias.",
                "Use --ablation mean, which needs none.",
            )
        gone = gone.to(weight.device)
        found[site.key] = torch.einsum("hd,hdm->m", means[site.key].to(weight)[gone], weight[gone])
    return found


@contextlib.contextmanager
def compensated(heads: Heads, mask: HeadMask, means: Means) -> Iterator[None]:
    """Inside, the heads are removed (zero) and the folded biases added behind the projections.

    This is what a model looks like whose heads were taken out and whose biases were changed. For a mask it equals mean
    ablation, since a projection is linear: (z - z_h) W + mean_h W_h = (z with mean_h in place of z_h) W.
    """
    biases = folded_biases(heads, mask, means)
    hooks = []
    try:
        for site in heads.sites:
            if site.key in biases and site.projection is not None:
                bias = biases[site.key]
                hooks.append(site.projection.register_forward_hook(lambda module, given, out, bias=bias: out + bias))
        with heads.masked(mask):
            yield
    finally:
        for hook in hooks:
            hook.remove()
