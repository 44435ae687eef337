"""Does a head copy? The direct path of a token it looks at through its output circuit to the model's own logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headlab.attention.observe.statistics import TextSums
from headlab.attention.reach.call import AttentionCall, by_query_head
from headlab.attention.reach.sites import Site
from headlab.labels import Scene


def copying_sums(model: nn.Module, site: Site, call: AttentionCall, scene: Scene) -> TextSums | None:
    """For each key token, the share of the raise in logits that goes to that very token: (batch, head, 1) sums.

    The raise is v_j W_h, scaled by the weight of the final norm where there is one, times the unembedding, for the
    tokens of the text, each once; less their mean; below 0 counts as 0. None for a model without an unembedding, and
    for attention to another text.
    """
    unembedding = _unembedding(model, site)
    weight = site.weight()
    if unembedding is None or weight is None or not scene.self_attention:
        return None
    batch = scene.keys.ids.shape[0]
    value = torch.zeros(batch, site.n_heads, 1, dtype=torch.float64)
    count = torch.zeros(batch, 1)
    chance = torch.zeros(batch, 1)
    for row in range(batch):
        ids, place = torch.unique(scene.keys.ids[row][scene.keys.valid[row]], return_inverse=True)
        real = call.value[row, :, : scene.keys.ids.shape[1]][:, scene.keys.valid[row]].float()
        shares = _shares(real, weight.float(), unembedding[ids].float(), place)
        value[row, :, 0] = shares.double().sum(-1).cpu()
        count[row], chance[row] = len(place), len(place) / len(ids)
    return TextSums(value, count, chance)


def _shares(value: Tensor, weight: Tensor, rows: Tensor, own: Tensor) -> Tensor:
    """Share of each key's raise that goes to its own token, (head, key).

    value (kv_head, key, dim), weight (head, dim, width), rows (token, width).
    """
    heads = weight.shape[0]
    grouped = by_query_head(value, heads, dim=0)
    through = torch.matmul(weight, rows.T)  # (head, dim, token)
    raised = torch.matmul(grouped, through)  # (head, key, token)
    raised = (raised - raised.mean(-1, keepdim=True)).clamp_min(0)
    mine = raised.gather(-1, own[None, :, None].expand(heads, -1, 1)).squeeze(-1)
    return mine / raised.sum(-1).clamp_min(1e-30)


def _unembedding(model: nn.Module, site: Site) -> Tensor | None:
    """The rows of the output embedding (vocabulary, width), scaled by the weight of the final norm."""
    find: Any = getattr(model, "get_output_embeddings", None)
    layer = find() if find is not None else None
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not site.causal:
        return None
    base = getattr(model, "base_model", model)
    inner = getattr(base, "decoder", base)
    norms = [
        m for m in inner.children() if "norm" in type(m).__name__.lower() and getattr(m, "weight", None) is not None
    ]
    last: Any = norms[-1].weight if norms else None
    return weight * last if last is not None and last.shape == weight.shape[1:] else weight
