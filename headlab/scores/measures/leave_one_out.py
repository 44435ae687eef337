"""What each head's removal alone adds to the loss of each example: shared by the ways to measure it."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.attention.change.replay import replay_of
from headlab.scores.measures.losses import batch_name, batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task

Journal = MutableMapping[str, list]
WHAT = "one head left out at a time"


class LeftOut:
    """Rises of the loss by removing single heads, computed batch by batch and within a batch layer by layer.

    Passes are taken up at the edited layer where the model allows it (attention.change.replay). What is in `journal`
    is not computed again, and what is computed goes there at once.
    """

    def __init__(
        self, heads: Heads, task: Task, split: str, ablation: str, seed: int, journal: Journal | None = None
    ) -> None:
        self.heads, self.task, self.split = heads, task, split
        self.ablation, self.seed = ablation, seed
        self.journal: Journal = {} if journal is None else journal
        self._means: Any = None
        self._prepared = False

    def rises(self, batch: Batch, removed: Sequence, steps: Any = None) -> np.ndarray:
        """Loss without each head minus loss with all, (removed, examples of the batch)."""
        name = batch_name(batch)
        found: dict[tuple, np.ndarray] = {}
        waiting: dict[tuple[str, int], list] = {}
        for head in removed:
            key = self._key(name, head)
            if key in self.journal:
                found[tuple(head)] = np.array(self.journal[key], dtype=float)
                if steps:
                    steps(1)
            else:
                waiting.setdefault((head[0], head[1]), []).append(head)
        if waiting:
            without = self._recorded(batch)
            for members in waiting.values():
                for head, rise in zip(members, without(members), strict=True):
                    self.journal[self._key(name, head)] = rise
                    found[tuple(head)] = rise
                if steps:
                    steps(len(members))
        return np.stack([found[tuple(head)] for head in removed])

    def _recorded(self, batch: Batch) -> Any:
        """A function of heads that gives their rises on one batch."""
        if not self._prepared:
            texts = batches_of(self.task, self.split)
            self._means = self.heads.replacements(self.ablation, texts, seed=self.seed)
            self._prepared = True
        taken = replay_of(self.heads).record(batch, self.task.losses, self.ablation, self._means)
        return lambda removed: taken.without(removed) - taken.complete

    def _key(self, name: str, head: Sequence) -> str:
        kind, layer, number = head
        return f"{name} {kind} {layer} {number}"


def all_rises(left_out: LeftOut, progress: Any = None) -> np.ndarray:
    """The rise by every head on every example, (heads, examples), examples in the order of the split's batches."""
    heads = list(left_out.heads.index)
    batches = list(batches_of(left_out.task, left_out.split))
    steps = Steps(progress, len(batches) * len(heads))
    parts = [left_out.rises(batch, heads, steps) for batch in batches]
    return np.concatenate(parts, axis=1)


class Steps:
    """Counts steps and tells them to a progress function."""

    def __init__(self, progress: Any, total: int, what: str = WHAT) -> None:
        self.progress, self.total, self.what, self.done = progress, total, what, 0

    def __call__(self, n: int) -> None:
        self.done = min(self.done + n, self.total)
        if self.progress:
            self.progress(self.done, self.total, self.what)
