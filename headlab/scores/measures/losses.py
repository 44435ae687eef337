"""Losses of a split's examples under masks: what scores that remove heads are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headlab.base.errors import DataError
from headlab.base.masks import HeadMask
from headlab.models.state import evaluating

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task


class Losses:
    """The task's loss per example of one split under any mask; each mask is run once.

    Batches are made anew for every pass, so that memory does not grow with the number of texts. Mean losses that a
    `journal` holds are not computed again, and those that are computed go there at once. Raises DataError where the
    split has no examples.
    """

    def __init__(
        self, heads: Heads, task: Task, split: str, ablation: str = "zero", seed: int = 0,
        journal: MutableMapping[str, list] | None = None,
    ) -> None:  # fmt: skip
        self.heads, self.task, self.split = heads, task, split
        self.ablation, self.seed = ablation, seed
        self._means: Any = None
        self._known: MutableMapping[str, list] = {} if journal is None else journal

    def of(self, mask: HeadMask) -> np.ndarray:
        """Loss of every example, (examples,), in the order of the split's batches."""
        if not mask.removed:
            return self._run()
        self._prepare()
        with self.heads.masked(mask, self.ablation, self._means):
            return self._run()

    def mean(self, mask: HeadMask) -> float:
        """Mean loss under a mask, remembered."""
        key = f"{self.split} {self.ablation} {self.seed} without {mask.to_text() or 'none'}"
        if key not in self._known:
            self._known[key] = [float(self.of(mask).mean())]
        return self._known[key][0]

    def without(self, removed: Any) -> float:
        """Mean loss without some heads."""
        return self.mean(HeadMask.removing(removed, like=self.heads))

    def _prepare(self) -> None:
        """What stands in for removed heads, from the same split, once."""
        if self._means is None:
            self._means = self.heads.replacements(self.ablation, self.task.batches(self.split), seed=self.seed)

    def _run(self) -> np.ndarray:
        model, found = self.heads.model, []
        with evaluating(model), torch.no_grad():
            for batch in batches_of(self.task, self.split):
                found.append(self.task.losses(model, batch).double().cpu().numpy())  # (examples of the batch,)
        return np.concatenate(found)


def batches_of(task: Task, split: str) -> Iterator[Batch]:
    """The batches of a split; raises DataError where there are none."""
    empty = True
    for batch in task.batches(split):
        empty = False
        yield batch
    if empty:
        raise DataError(f"The split {split!r} has no examples, and a score needs at least 1.",
                        "Give the task more data or another split.")  # fmt: skip


def batch_name(batch: Batch) -> str:
    """A name for what a batch holds, in a journal: other batches, of another size say, have other names."""
    ids = ",".join(map(str, dict.fromkeys(batch.examples)))
    return f"examples {hashlib.sha256(ids.encode()).hexdigest()[:16]}"


def batching(task: Task, split: str) -> str:
    """A name for how a split is cut into batches: what is trained, a step a batch, depends on it."""
    names = " ".join(batch_name(batch) for batch in batches_of(task, split))
    return hashlib.sha256(names.encode()).hexdigest()[:16]


class Mean:
    """Mean and standard error of rows (examples, heads) that come in pieces; memory does not grow with them.

    With weights the mean is that of sums over sums of weights (per token, say), with the error of such a ratio.
    """

    def __init__(self) -> None:
        self.n = 0
        self._sums: np.ndarray | None = None  # (5, heads): x, w, xx, xw, ww

    def add(self, rows: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add one value per example and head, sums over `weights` items each, which have one row per example too."""
        rows = np.asarray(rows, dtype=float)
        weights = np.ones_like(rows) if weights is None else np.broadcast_to(weights, rows.shape).astype(float)
        sums = np.stack([x.sum(0) for x in (rows, weights, rows * rows, rows * weights, weights * weights)])
        self._sums = sums if self._sums is None else self._sums + sums
        self.n += len(rows)

    @property
    def value(self) -> np.ndarray:
        """(heads,); NaN where nothing was counted."""
        x, w, *_ = self._all()
        with np.errstate(all="ignore"):
            return np.where(w > 0, x / w, np.nan)

    @property
    def error(self) -> np.ndarray:
        """Standard error over examples, (heads,); NaN with fewer than 2."""
        _, w, xx, xw, ww = self._all()
        ratio = self.value
        with np.errstate(all="ignore"):
            squares = np.maximum(xx - 2 * ratio * xw + ratio**2 * ww, 0)
            return np.sqrt(squares * self.n / (self.n - 1)) / w if self.n > 1 else np.full(len(w), np.nan)

    def _all(self) -> np.ndarray:
        if self._sums is None:
            raise DataError("There are no examples, and a score needs at least 1.", "Give the task more data.")
        return self._sums
