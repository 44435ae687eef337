"""Attributions of single attention weights on one batch: integrated gradients (Hao et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headlab.attention.change.output_gradients import output_slopes
from headlab.attention.observe.block_passes import show_blocks
from headlab.attention.reach.blocks import Block
from headlab.attention.reach.call import AttentionCall, by_query_head
from headlab.attention.reach.sites import Site
from headlab.base.errors import UnsupportedModelError

if TYPE_CHECKING:
    from headlab.attention.subject import Subject
    from headlab.base.masks import LayerKey
    from headlab.models.texts.batch import Batch
    from headlab.scores.context import ScoreContext

REMEDY = "Use another score with this model, such as gradient."


def require_visible_values(subject: Subject) -> None:
    """Raise UnsupportedModelError unless every layer hands the plain sum of its visible values to a projection."""
    subject.need_projections("given attributions")
    name = next((site.name for site in subject.sites if not site.direct), None)
    if name is None and subject.view.tier not in (1, 2):
        name = subject.sites[0].name
    if name is not None:
        raise UnsupportedModelError(f"{name} does not hand the plain sum of its values to a projection.", REMEDY)


def mean_slope(context: ScoreContext, batch: Batch, site: Site, steps: int) -> Tensor:
    """Mean of dF/dz of one layer, (row, token, head, value_dim), over the scales 1/steps, 2/steps, ..., 1.

    F is minus the task's loss; attention of the whole layer is scaled.
    """
    total = torch.zeros(())
    for step in range(1, steps + 1):
        gates = {site.key: torch.full((site.n_heads,), step / steps)}
        _, slope = output_slopes(context.heads.subject, batch, context.task.losses, gates=gates)[site.key]
        total = total.to(slope.device) - slope
    return total / steps


def largest_attributions(subject: Subject, batch: Batch, slopes: Mapping[LayerKey, Tensor]) -> np.ndarray:
    """max_ij a_ij dF/da_ij, (examples of the batch, heads), with dF/da_ij = dF/dz_i . v_j and dF/dz from `slopes`."""
    batch = batch.to(subject.device)
    tops: dict[LayerKey, Tensor] = {}

    def read(site: Site, call: AttentionCall, block: Block) -> None:
        if call.weights is not None:
            raise UnsupportedModelError(f"The values of {site.name} are not seen, only its attention.", REMEDY)
        rows, n_keys = slice(block.start, block.stop), block.weights.shape[-1]
        value = by_query_head(call.value[:, :, :n_keys], site.n_heads)
        slope = slopes[site.key].transpose(1, 2)[:, :, rows]  # (row, head, query, value_dim)
        attribution = block.attention() * torch.matmul(slope.float(), value.float().transpose(-1, -2))
        queries, keys = batch.queries(site.kind).valid, batch.keys(site.kind).valid
        real = (queries[:, rows, None] & keys[:, None, :n_keys])[:, None] & (block.weights > 0)
        top = attribution.masked_fill(~real, -torch.inf).amax((2, 3)).double()
        tops[site.key] = torch.maximum(tops[site.key], top) if site.key in tops else top

    show_blocks(subject, batch, read)
    rows, owners = torch.cat([tops[site.key] for site in subject.sites], 1).cpu().numpy(), batch.owners.numpy()
    by_example = np.full((owners.max() + 1, rows.shape[1]), -np.inf)
    np.maximum.at(by_example, owners, rows)
    return by_example
