"""How a loss depends on each head: its gradient with respect to the gates that multiply heads, one backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from headlab.attention.change.output_gradients import slopes_of
from headlab.attention.reach.projections import gated
from headlab.attention.subject import Subject
from headlab.base.masks import HeadMask
from headlab.models.state import evaluating, frozen
from headlab.models.texts.batch import Batch, Loss


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
