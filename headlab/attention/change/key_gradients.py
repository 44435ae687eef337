"""How much the loss depends on the attention to a class of keys: mean |d loss / d a_ij|, after Clark et al. 2019.

With z_i = sum_j a_ij v_j the slope is d loss / d a_ij = (d loss / d z_i) . v_j, so the values of one pass and the
slopes at each head's output are enough, and the slope of every weight is there a block of queries at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headlab.attention.change.output_gradients import output_slopes
from headlab.attention.observe.geometry import Geometry, geometry_of
from headlab.attention.observe.passes import scene_of
from headlab.attention.observe.targets import ROWS
from headlab.attention.reach.call import AttentionCall, by_query_head
from headlab.attention.reach.sites import Site
from headlab.attention.subject import HasSubject, Subject
from headlab.base.errors import UnsupportedModelError
from headlab.base.masks import LayerKey
from headlab.labels import Label
from headlab.models.texts.batch import Batch, Loss

Seen = dict[LayerKey, tuple[Geometry, Tensor]]


def key_gradients(heads: HasSubject, batches: Iterable[Batch], loss: Loss, labels: Sequence[Label]) -> pd.DataFrame:
    """Mean |d loss / d a_ij| over queries of the attention to each label's keys, indexed like the head table.

    `loss(model, batch)` returns one differentiable number per example; `labels` are those
    with a key class (separator, cls, sink, punctuation, vertical). Columns: `gradient_<label>`, the sum over the keys
    of the class, and `gradient_all` over all visible keys; means over real queries that see the class. Per key the
    class is above or below the rest where its share of the sum is above or below its share of the keys,
    `gradient_<label>_keys`. Raises UnsupportedModelError for a model whose attention is not a plain sum of values.
    """
    subject = heads.subject
    lacking = [site.name for site in subject.sites if not site.direct or subject.view.tier != 1]
    if lacking:
        cause = f"{lacking[0]} does not hand the plain sum of its values to a projection."
        raise UnsupportedModelError(cause, "Slopes of single weights are known without gates in between only.")
    classes = [label for label in labels if label.keys is not None]
    total = {site.key: np.zeros((2, 1 + len(classes), site.n_heads)) for site in subject.sites}
    count = {site.key: np.zeros(1 + len(classes)) for site in subject.sites}
    for batch in batches:
        batch = batch.to(subject.device).clone()
        seen = _values(subject, batch)
        slopes = output_slopes(subject, batch, loss)
        for site in subject.sites:
            slope = slopes[site.key][1].transpose(1, 2)  # (batch, head, query, value_dim)
            if slope.any():  # the loss reaches the layer
                _add(site, seen[site.key], slope, classes, total[site.key], count[site.key])
    return _table(subject, classes, total, count)


def _values(subject: Subject, batch: Batch) -> Seen:
    """Each layer's geometry and values (batch, kv_head, key, dim)."""
    seen: Seen = {}

    def note(site: Site, call: AttentionCall) -> None:
        geometry = geometry_of(call, batch.queries(site.kind), batch.keys(site.kind))
        geometry.shared["scene"] = scene_of(subject, batch, site.kind)
        seen[site.key] = geometry, call.value.detach()

    with subject.watched(note):
        subject.forward(batch)
    return seen


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
    value = by_query_head(value[:, :, : geometry.n_keys], site.n_heads).float()
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


def _table(subject: Subject, classes: Sequence[Label], total: dict, count: dict) -> pd.DataFrame:
    columns: dict[str, np.ndarray] = {}
    for place, name in enumerate(["all", *(label.name for label in classes)]):
        for which, suffix in enumerate(("", "_keys")):
            parts = []
            for site in subject.sites:
                n = count[site.key][place]
                parts.append(total[site.key][which, place] / n if n else np.full(site.n_heads, np.nan))
            columns[f"gradient_{name}{suffix}"] = np.concatenate(parts)
    return pd.DataFrame(columns, index=subject.index)
