"""How much the loss depends on the attention to a class of keys: mean |d loss / d a_ij|, after Clark et al. 2019.

With z_i = sum_j a_ij v_j the slope is d loss / d a_ij = (d loss / d z_i) . v_j, so the values of one pass and the
slopes at each head's output are enough, and the slope of every weight is there a block of queries at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from headlab.attention.observe.geometry import Geometry, geometry_of
from headlab.attention.observe.passes import BatchPass
from headlab.attention.observe.targets import ROWS
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.projections import edits_at_projections, per_head
from headlab.attention.reach.sites import Site
from headlab.attention.reach.views import site_handler
from headlab.base.errors import UnsupportedModelError
from headlab.labels import Label
from headlab.models.state import evaluating, frozen
from headlab.models.texts.batch import Batch

if TYPE_CHECKING:
    from headlab.attention.heads import Heads

Loss = Callable[[nn.Module, Batch], Tensor]
Seen = dict[tuple[str, int], tuple[Geometry, Tensor]]


def key_gradients(heads: Heads, batches: Iterable[Batch], loss: Loss, labels: Sequence[Label]) -> pd.DataFrame:
    """Mean |d loss / d a_ij| over queries of the attention to each label's keys, indexed like the head table.

    `loss(model, batch)` returns one differentiable number per example; `labels` are those with a key class
    (separator, cls, sink, punctuation, vertical). Columns: `gradient_<label>`, the sum over the keys of the class,
    and `gradient_all` over all visible keys; means over real queries that see the class. Per key the class is above
    or below the rest where its share of the sum is above or below its share of the keys, `gradient_<label>_keys`.
    Raises UnsupportedModelError for a model whose attention is not a plain sum of values.
    """
    lacking = [site.name for site in heads.sites if not site.direct or heads.view.tier != 1]
    if lacking:
        raise UnsupportedModelError(f"{lacking[0]} does not hand the plain sum of its values to a projection.",
                                    "Slopes of single weights are known without gates in between only.")  # fmt: skip
    classes = [label for label in labels if label.keys is not None]
    total = {site.key: np.zeros((2, 1 + len(classes), site.n_heads)) for site in heads.sites}
    count = {site.key: np.zeros(1 + len(classes)) for site in heads.sites}
    for batch in batches:
        here = batch.to(heads.device).clone()
        seen = _values(heads, here)
        slopes = _slopes(heads, here, loss)
        for site in heads.sites:
            if site.key in slopes:
                _add(site, seen[site.key], slopes[site.key], classes, total[site.key], count[site.key])
    return _table(heads, classes, total, count)


def _values(heads: Heads, batch: Batch) -> Seen:
    """Each layer's geometry and values (batch, kv_head, key, dim)."""
    from headlab.attention.observe.observation import Observation

    sides = BatchPass(Observation(heads, []), batch)
    seen: Seen = {}

    def reader_of(site: Site, call: AttentionCall) -> None:
        geometry = geometry_of(call, *sides.sides(site.kind))
        geometry.shared["scene"] = sides.scene(site.kind)
        seen[site.key] = geometry, call.value.detach()

    handler = site_handler(heads.sites, reader_of, heads.view)
    with torch.no_grad(), evaluating(heads.model), heads.view.engage(heads.model, handler):
        heads.forward(batch)
    return seen


def _slopes(heads: Heads, batch: Batch, loss: Loss) -> dict[tuple[str, int], Tensor]:
    """D loss / d z of each layer, (batch, head, query, dim), with the model's own attention."""
    leaves: dict[tuple[str, int], Tensor] = {}

    def add_leaf(site: Site, entering: Tensor) -> Tensor:
        leaves[site.key] = torch.zeros_like(entering, requires_grad=True)
        return entering + leaves[site.key]

    model = heads.model
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        evaluating(model),
        frozen(model),
        edits_at_projections(model, heads.sites, add_leaf),
    ):
        found = torch.autograd.grad(loss(model, batch).sum(), list(leaves.values()), allow_unused=True)
    sites = {site.key: site for site in heads.sites}
    return {
        key: per_head(slope, sites[key])
        .reshape(len(batch), -1, sites[key].n_heads, sites[key].value_dim)
        .transpose(1, 2)
        for key, slope in zip(leaves, found, strict=True)
        if slope is not None
    }


def _add(
    site: Site,
    seen: tuple[Geometry, Tensor],
    slope: Tensor,
    classes: Sequence[Label],
    total: np.ndarray,
    count: np.ndarray,
) -> None:
    """Add |slope . v_j| summed over the visible keys of each class, and the number of those keys as a share."""
    geometry, value = seen
    value = value[:, :, : geometry.n_keys].repeat_interleave(site.n_heads // value.shape[1], 1).float()
    scene = geometry.shared["scene"]
    members = torch.stack([scene.keys.valid, *(label.keys.keys(scene) for label in classes if label.keys)], -1).float()
    members = members[:, : geometry.n_keys]
    for start in range(0, geometry.n_queries, ROWS):
        rows = slice(start, min(start + ROWS, geometry.n_queries))
        visible = geometry.visible_block(rows).float()  # (batch or 1, row, key)
        size = torch.matmul(slope[:, :, rows].float(), value.transpose(-1, -2)).abs() * visible[:, None]
        sums = torch.matmul(size, members[:, None])  # (batch, head, row, class)
        keys = torch.matmul(visible, members)  # (batch, row, class)
        counted = (geometry.query_valid[:, rows, None] & (keys > 0)).float()
        total[0] += torch.einsum("bhqc,bqc->ch", sums, counted).double().cpu().numpy()
        share = (keys / keys[..., :1].clamp_min(1) * counted).sum((0, 1)).double().cpu().numpy()
        total[1] += share[:, None]
        count += counted.sum((0, 1)).double().cpu().numpy()


def _table(heads: Heads, classes: Sequence[Label], total: dict, count: dict) -> pd.DataFrame:
    columns: dict[str, np.ndarray] = {}
    for place, name in enumerate(["all", *(label.name for label in classes)]):
        for which, suffix in enumerate(("", "_keys")):
            parts = []
            for site in heads.sites:
                n = count[site.key][place]
                parts.append(total[site.key][which, place] / n if n else np.full(site.n_heads, np.nan))
            columns[f"gradient_{name}{suffix}"] = np.concatenate(parts)
    return pd.DataFrame(columns, index=heads.index)
