"""Largest attribution of a single attention weight, integrated up to full attention (Hao et al. 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headlab.attention.change.output_gradients import key_tokens, output_slopes, query_tokens, require_projections
from headlab.attention.observe.block_passes import show_blocks
from headlab.attention.reach.blocks import Block
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.sites import Site
from headlab.base.errors import UnsupportedModelError, UsageError
from headlab.scores.measures.losses import Mean, batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.models.texts.batch import Batch
    from headlab.scores import Progress
    from headlab.tasks import Task


def score(
    heads: Heads, task: Task, *, split: str = "select", steps: int = 20, progress: Progress | None = None, **_: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Mean over examples of max_ij Attr_ij, (heads,), in the units of the task's loss.

    Attr_ij = a_ij times the mean slope of F with respect to a_ij while the attention of the whole layer is scaled
    from 1/`steps` to 1 (a Riemann sum of 20 steps, as in the paper), one layer at a time. F is minus the task's loss
    (the paper: the probability of the right class), so that above 0 speaks for the head. The slope follows from that
    at the head's output: dF/da_ij = dF/dz_i . v_j, so no attention map is kept. It costs `steps` times the number of
    layers forward and backward passes. An example of several rows counts its largest. Beside it the standard error
    over examples. Raises UsageError for steps below 1, DataError where the split has no examples,
    UnsupportedModelError where the head's output is not the plain sum of visible values.
    """
    _check(heads, steps)
    mean, done, total = Mean(), 0, len(task.split(split)) * len(heads.sites)
    for batch in batches_of(task, split):
        slopes = {}
        n_examples = len(set(batch.examples))
        for site in heads.sites:
            slopes[site.key] = _mean_slope(heads, task, batch, site, steps)
            done += n_examples
            if progress:
                progress(done, total, f"{site.kind} layer {site.layer}")
        rows = _largest(heads, batch.to(heads.device), slopes)
        examples = list(dict.fromkeys(batch.examples))
        owner = np.array([examples.index(example) for example in batch.examples])
        mean.add(np.stack([rows[owner == place].max(0) for place in range(len(examples))]))
    return mean.value, mean.error


def _check(heads: Heads, steps: int) -> None:
    if steps < 1:
        raise UsageError(f"{steps} steps are no integral.", "Take at least 1; the paper takes 20.")
    require_projections(heads, "given attributions")
    lacking = [site.name for site in heads.sites if not site.direct]
    if lacking or heads.view.tier not in (1, 2):
        name = lacking[0] if lacking else heads.sites[0].name
        raise UnsupportedModelError(f"{name} does not hand the plain sum of its values to a projection.",
                                    "Use another score with this model, such as gradient.")  # fmt: skip


def _mean_slope(heads: Heads, task: Task, batch: Batch, site: Site, steps: int) -> Tensor:
    """Mean of dF/dz of one layer, (row, token, head, value_dim), over the scales 1/steps, 2/steps, ..., 1."""
    total = torch.zeros(())
    for step in range(1, steps + 1):
        gates = {site.key: torch.full((site.n_heads,), step / steps)}
        _, slope = output_slopes(heads, batch, task.losses, gates=gates)[site.key]
        total = total.to(slope.device) - slope
    return total / steps


def _largest(heads: Heads, batch: Batch, slopes: dict[tuple[str, int], Tensor]) -> np.ndarray:
    """The largest attribution of each row and head, (row, heads)."""
    found: dict[tuple[str, int], Tensor] = {}

    def read(site: Site, call: AttentionCall, block: Block) -> None:
        if call.weights is not None:
            raise UnsupportedModelError(f"The values of {site.name} are not seen, only its attention.",
                                        "Use another score with this model, such as gradient.")  # fmt: skip
        here, n_keys = slice(block.start, block.stop), block.weights.shape[-1]
        value = call.value[:, :, :n_keys].repeat_interleave(site.n_heads // call.value.shape[1], 1)
        slope = slopes[site.key].transpose(1, 2)[:, :, here]  # (row, head, query, value_dim)
        attribution = block.attention() * torch.matmul(slope.float(), value.float().transpose(-1, -2))
        queries, keys = query_tokens(batch, site.kind).valid, key_tokens(batch, site.kind).valid
        real = (queries[:, here, None] & keys[:, None, :n_keys])[:, None] & (block.weights > 0)
        top = attribution.masked_fill(~real, -torch.inf).amax((2, 3)).double()
        found[site.key] = torch.maximum(found[site.key], top) if site.key in found else top

    show_blocks(heads, batch, read)
    return torch.cat([found[site.key] for site in heads.sites], 1).cpu().numpy()
