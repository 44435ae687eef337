"""Heads multiplied by gates, and how a loss depends on the gates: one backward pass for all heads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np
import torch

from headlab.attention.change.output_gradients import slopes_of
from headlab.attention.reach.projections import Gates, gated
from headlab.attention.subject import Subject
from headlab.base.errors import UsageError
from headlab.base.masks import HeadMask
from headlab.models.state import evaluating, frozen
from headlab.models.texts.batch import Batch, Loss


@contextlib.contextmanager
def under_gates(subject: Subject, gates: Gates) -> Iterator[None]:
    """Inside, each head's contribution is multiplied by its gate; layers that are not named stay as they are.

    Raises UsageError for layers and numbers of heads that the model does not have.
    """
    subject.need_gates("gated")
    for key, gate in gates.items():
        if gate.dim() not in (1, 2) or gate.shape[-1] != subject.heads_per_layer.get(key):
            cause = f"Gates of shape {tuple(gate.shape)} for {key} do not fit the model."
            raise UsageError(cause, "Give (heads,) or (rows, heads of the layer) for each (kind, layer).")
    with gated(subject.module, subject.sites, subject.view, gates):
        yield


def gate_gradients(
    subject: Subject, batches: Iterable[Batch], loss: Loss, *, at: HeadMask | None = None
) -> Iterator[np.ndarray]:
    """For each batch d loss / d gate, (example, head), with every gate at 1, or at 0 for the removed heads of `at`.

    Heads are in the order of `subject.index`; rows of one example are summed. Raises UnsupportedModelError where
    nothing can be gated and where the loss has no gradient.
    """
    subject.need_gates("given gradients")
    for batch in batches:
        with torch.inference_mode(False), torch.enable_grad(), evaluating(subject.module), frozen(subject.module):
            slopes = _on_batch(subject, batch.to(subject.device).clone(), loss, at)
        yield slopes  # the caller's own code runs with the model as it was found


def _on_batch(subject: Subject, batch: Batch, loss: Loss, at: HeadMask | None) -> np.ndarray:
    gates = {
        site.key: torch.ones(len(batch), site.n_heads, device=subject.device, requires_grad=True)
        for site in subject.sites
    }
    with gated(subject.module, subject.sites, subject.view, gates):
        if at is not None:
            for key, gate in gates.items():
                gate.data *= torch.tensor(at[key]).to(gate)
        slopes = slopes_of(loss(subject.module, batch), list(gates.values()))
    pairs = zip(gates.values(), slopes, strict=True)
    rows = torch.cat([torch.zeros_like(gate) if slope is None else slope for gate, slope in pairs], 1)
    return batch.sum_by_example(rows.detach().double().cpu()).numpy()
