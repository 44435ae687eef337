"""What each head's removal alone adds to the loss of each example: shared by the ways to measure it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from headlab.base.progress import Steps
    from headlab.models.texts.batch import Batch
    from headlab.scores.context import ScoreContext


class LeftOut:
    """Rises of the loss by removing single heads, computed batch by batch and within a batch layer by layer.

    Passes are taken up at the edited layer where the model allows it (attention.change.replay). What is in the
    context's journal is not computed again, and what is computed goes there at once.
    """

    def __init__(self, context: ScoreContext) -> None:
        self.context = context
        self.journal: MutableMapping[str, list] = {} if context.journal is None else context.journal

    def rises(self, batch: Batch, removed: Sequence, steps: Steps | None = None) -> np.ndarray:
        """Loss without each head minus loss with all, (removed, examples of the batch)."""
        from headlab.tasks.running.batches import batch_name

        keys = {tuple(head): f"{batch_name(batch)} {' '.join(map(str, head))}" for head in removed}
        missing: dict[tuple[str, int], list] = {}
        for head, key in keys.items():
            if key not in self.journal:
                missing.setdefault(head[:2], []).append(head)
        if steps:
            steps(len(keys) - sum(map(len, missing.values())))
        without = self._recorded(batch) if missing else None
        for members in missing.values():
            for head, rise in zip(members, without(members), strict=True):  # type: ignore[misc]
                self.journal[keys[head]] = rise
            if steps:
                steps(len(members))
        return np.stack([np.array(self.journal[key], dtype=float) for key in keys.values()])

    def _recorded(self, batch: Batch) -> Callable[[Sequence], np.ndarray]:
        """A function of heads that gives their rises on one batch."""
        from headlab.attention.change.replay import replay_of

        context = self.context
        replay = replay_of(context.heads.subject)
        taken = replay.record(batch, context.task.losses, context.ablation, context.replacements)
        return lambda removed: taken.without(removed) - taken.complete


def rises_on_all(left_out: LeftOut, heads: Sequence, steps: Steps) -> np.ndarray:
    """The rise by each of some heads on every example, (heads, examples), in the order of the split's batches."""
    return np.concatenate([left_out.rises(batch, heads, steps) for batch in left_out.context.batches()], axis=1)


def rises_on(left_out: LeftOut, ids: Sequence[int] | np.ndarray, heads: Sequence) -> np.ndarray:
    """The rise by each of some heads on the examples of these ids, (heads, ids), in the order of `ids`."""
    column = {int(example): place for place, example in enumerate(ids)}
    context = left_out.context
    found = np.empty((len(heads), len(ids)))
    for batch in context.task.batches(context.split, examples=list(column)):
        found[:, [column[int(example)] for example in batch.example_ids]] = left_out.rises(batch, heads)
    return found
