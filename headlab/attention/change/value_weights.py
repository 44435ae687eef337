"""Which rows of which weight matrix make a head's values: found by comparing numbers, not by names of parameters."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headlab.attention.reach.call import AttentionCall, by_query_head
from headlab.attention.reach.sites import Site
from headlab.attention.reach.state import hooked
from headlab.attention.subject import Subject
from headlab.base.errors import UnsupportedModelError
from headlab.base.masks import LayerKey
from headlab.models.texts.batch import Batch


def value_weights(subject: Subject, batch: Batch | None = None) -> dict[LayerKey, Tensor]:
    """W_V of every head, (head, width in, value_dim) by (kind, layer): values are its input times this (plus a bias).

    On an example every value column is looked for among the columns that the linear layers of the model returned in
    that pass; equal numbers on all tokens name the row of the weight. Query heads that share values share W_V. Raises
    UnsupportedModelError where values are seen nowhere or are not what a linear layer returned.
    """
    batch = subject.example if batch is None else batch.to(subject.device)
    returned: list[tuple[nn.Module, Tensor]] = []
    weights: dict[LayerKey, Tensor] = {}

    def look(site: Site, call: AttentionCall) -> None:
        if call.weights is None:
            weights[site.key] = _weights_of(site, call, returned)

    linear = [m for m in subject.module.modules() if isinstance(m, (nn.Linear, Conv1D))]
    hooks = [m.register_forward_hook(lambda m, args, out: returned.append((m, out.detach()))) for m in linear]
    with hooked(hooks), subject.watched(look):
        subject.forward(batch)
    for site in subject.sites:
        if site.key not in weights:
            cause = f"The values of {site.name} are not seen, only its attention."
            raise UnsupportedModelError(cause, "Use magnitude, without :value-output.")
    return weights


def _weights_of(site: Site, call: AttentionCall, returned: list[tuple[nn.Module, Tensor]]) -> Tensor:
    """W_V of one layer, (head, width in, value_dim)."""
    value = call.value.detach().transpose(1, 2)  # (row, key, kv_head, value_dim)
    columns = value.reshape(-1, value.shape[2] * value.shape[3])
    for module, output in reversed(returned):  # a layer's own come last
        seen = output.reshape(-1, output.shape[-1])
        if seen.shape[0] != columns.shape[0] or seen.shape[1] < columns.shape[1]:
            continue
        gap = torch.cdist(columns.T.double(), seen.T.double())  # (value column, output column)
        best, place = gap.min(1)
        equal = best <= 1e-5 * columns.double().norm(dim=0).clamp_min(1e-6)
        if equal.all() and len(set(place.tolist())) == len(best):
            plain = cast(Tensor, module.weight).detach()
            weight = plain if isinstance(module, Conv1D) else plain.T  # (width in, width out)
            chosen = weight[:, place].float().reshape(weight.shape[0], *value.shape[2:]).transpose(0, 1)
            return by_query_head(chosen, site.n_heads, dim=0)
    cause = f"The values of {site.name} are not what a linear layer returned."
    raise UnsupportedModelError(cause, "Use magnitude, without :value-output.")
