"""The mean loss of a split under masks: what scores are made of that remove several heads at once."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING

from headlab.base.masks import HeadMask

if TYPE_CHECKING:
    from headlab.scores.context import ScoreContext


class Losses:
    """The task's mean loss over one split under any mask; each mask is run once.

    Batches are made anew for every pass, so that memory does not grow with the number of texts. Raises DataError where
    the split has no examples.
    """

    def __init__(self, context: ScoreContext) -> None:
        self.context = context
        self._known: MutableMapping[str, list] = {} if context.journal is None else context.journal

    def without(self, removed: Iterable[Sequence]) -> float:
        """Mean loss without some heads, remembered."""
        context = self.context
        mask = HeadMask.removing(removed, like=context.heads)
        key = f"{context.split} {context.ablation} {context.seed} without {mask.to_text() or 'none'}"
        if key not in self._known:
            self._known[key] = [mean_loss(context, mask)]
        return self._known[key][0]


def mean_loss(context: ScoreContext, mask: HeadMask) -> float:
    """The task's mean loss over the split under a mask."""
    import contextlib

    import torch

    from headlab.models.state import evaluating

    heads, task = context.heads, context.task
    applied = heads.masked(mask, context.ablation, context.replacements) if mask.removed else contextlib.nullcontext()
    with applied, evaluating(heads.model), torch.no_grad():
        losses = [task.losses(heads.model, batch).double().cpu() for batch in context.batches()]
    return float(torch.cat(losses).numpy().mean())
