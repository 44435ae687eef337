"""Training one gate per head on a task's loss, with the model's weights frozen or lightly trained along."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from headlab.base.errors import DataError, UnsupportedModelError, UsageError, unknown_name
from headlab.base.masks import KINDS, HeadMask, LayerKey
from headlab.models.state import frozen
from headlab.scores.gates.gates import Gates
from headlab.scores.gates.settings import Training
from headlab.scores.measures.stepping import take_steps, trainable, weights_restored
from headlab.tasks.running.batches import batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.base.progress import Progress
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task


@dataclass(frozen=True)
class LearnedGates:
    """Gates at the end of their training; arrays are (heads,), in the order of `heads.index`.

    `free` says which heads had a gate at all; the others are kept. `losses` is the task's loss at each step, without
    the price of the gates, NaN where a step was passed over because its loss was no number.
    """

    gates: Gates
    free: np.ndarray
    losses: np.ndarray

    @property
    def keep(self) -> np.ndarray:
        kept = np.ones(len(self.free), dtype=bool)
        kept[self.free] = self.gates.keep()
        return kept

    @property
    def weights(self) -> np.ndarray:
        """The trained number of each head; NaN for heads without a gate."""
        return self._among_all(self.gates.weights.detach().numpy())

    @property
    def worth(self) -> np.ndarray:
        """P(open), or the learned weight; NaN for heads without a gate."""
        return self._among_all(self.gates.worth())

    def _among_all(self, values: np.ndarray) -> np.ndarray:
        found = np.full(len(self.free), np.nan)
        found[self.free] = values
        return found

    @property
    def n_open(self) -> int:
        """Open gates, heads without a gate not counted."""
        return int(self.keep[self.free].sum())

    def mask(self, like: Heads) -> HeadMask:
        """The hard mask."""
        gone = [head for head, kept in zip(like.index, self.keep, strict=True) if not kept]
        return HeadMask.removing(gone, like=like)

    def resting(self, like: Heads) -> dict[LayerKey, Tensor]:
        """The gates without noise, for `like.gate_context`."""
        return by_layer(like, among_all(self.gates.resting().detach(), self.free))


def gated_heads(heads: Heads, kinds: Iterable[str] | None) -> np.ndarray:
    """Which heads get a gate, (heads,) bool: all, or those of some kinds; UsageError where the model has none."""
    chosen = None if kinds is None else set(kinds)
    for kind in chosen or ():
        if kind not in KINDS:
            raise unknown_name("kind of attention", kind, KINDS)
    free = np.array([chosen is None or kind in chosen for kind, _, _ in heads.index])
    if not free.any():
        present = ", ".join(sorted({kind for kind, _, _ in heads.index}))
        raise UsageError(f"The model has no heads of the kind {'+'.join(sorted(chosen or ()))}.", f"It has {present}.")
    return free


@contextlib.contextmanager
def trained_gates(
    heads: Heads,
    task: Task,
    gates: Gates,
    how: Training,
    progress: Progress | None = None,
    free: np.ndarray | None = None,
) -> Iterator[LearnedGates]:
    """Train gates; inside, weights that were trained along are as trained, afterwards they are as they were found.

    `free`, (heads,), says which heads have a gate, all by default. The loss is the mean over the batch, so that a
    penalty means the same whatever the batch size. Dropout is off. Raises DataError where no step has a loss that is a
    number.
    """
    how.check()
    model = heads.model
    free = np.ones(len(heads.index), dtype=bool) if free is None else free
    n = int(free.sum())
    groups: list[dict[str, Any]] = [{"params": [gates.weights], "lr": how.learning_rate}]
    if how.train == "all":
        groups.append({"params": trainable(model), "lr": how.weights_rate})
    generator = torch.Generator().manual_seed(how.seed)

    def loss_of(step: int, batch: Batch) -> tuple[Tensor, Tensor]:
        shape = (int(batch.owners.max()) + 1, n) if how.per_example else (n,)
        drawn = gates.draw(shape, step / max(1, how.steps - 1), generator)
        rows = drawn[batch.owners] if how.per_example else drawn  # the rows of one example share its gates
        with heads.gate_context(by_layer(heads, among_all(rows, free))):
            loss = task.losses(model, batch).double().mean()
        if not loss.requires_grad:
            raise UnsupportedModelError(
                "The loss has no gradient, so no gates can be learned: the model or the task cuts it off.",
                "Use a score that needs none, such as ablation.",
            )
        return loss, loss.cpu() + gates.cost()

    def report(step: int) -> None:
        if progress:
            progress(step + 1, how.steps, f"training gates, {int(gates.keep().sum())} of {n} open")

    with weights_restored(model) if how.train == "all" else contextlib.nullcontext():
        with contextlib.nullcontext() if how.train == "all" else frozen(model):
            losses = take_steps(model, groups, list(batches_of(task, how.split)), how.steps, how.seed, loss_of, report)
        if np.isnan(losses).all():
            raise DataError(
                "The loss was no number in any step of the training of gates.",
                "Try a lower learning rate, or look at the task's loss on the full model.",
            )
        yield LearnedGates(gates, free, losses)


def among_all(gates: Tensor, free: np.ndarray) -> Tensor:
    """Gates of the free heads (..., free) as gates of all heads (..., heads), 1 elsewhere."""
    if free.all():
        return gates
    whole = gates.new_ones(*gates.shape[:-1], len(free))
    return whole.index_copy(-1, torch.tensor(np.flatnonzero(free)), gates)


def by_layer(heads: Heads, gates: Tensor) -> dict[LayerKey, Tensor]:
    """Gates (..., heads) cut into those of each (kind, layer), in the order of `heads.index`."""
    sizes = heads.heads_per_layer
    return dict(zip(sizes, gates.split(list(sizes.values()), dim=-1), strict=True))
