"""Training one gate per head on a task's loss, with the model's weights frozen or lightly trained along."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from headlab.base.errors import DataError, UsageError, unknown_name
from headlab.base.masks import KINDS, HeadMask
from headlab.models.state import evaluating, frozen
from headlab.scores.gates.weights import in_seeded_order, load_batches, require_steps, trainable, weights_restored

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task

STEPS = 200
LEARNING_RATE = 0.1  # of the gates
WEIGHTS_RATE = 2e-5  # of the model's own weights, where they are trained along
TRAIN = ("gates", "all")
Progress = Callable[[int, int, str], None]


class Gates(Protocol):
    """A distribution of gates with one trainable number per head."""

    name: str
    weights: Tensor  # (heads,), float64

    @property
    def level(self) -> float: ...
    def draw(self, shape: tuple[int, ...], share: float, generator: torch.Generator) -> Tensor: ...
    def cost(self) -> Tensor: ...
    def resting(self) -> Tensor: ...
    def keep(self) -> np.ndarray: ...
    def worth(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Training:
    """How gates are trained. `train`: "gates" (weights frozen) or "all" (weights too, at `weights_rate`).

    Gates are drawn once for each batch, as in Voita's code, or with `per_example` anew for every example of it, which
    makes the gradient less noisy at the same cost.
    """

    steps: int = STEPS
    learning_rate: float = LEARNING_RATE
    train: str = "gates"
    weights_rate: float = WEIGHTS_RATE
    per_example: bool = False
    seed: int = 0
    split: str = "select"

    def check(self) -> None:
        """Raise UsageError for values that cannot be."""
        require_steps(self.steps)
        if self.train not in TRAIN:
            raise unknown_name("choice of what to train", self.train, TRAIN)
        for name in ("learning_rate", "weights_rate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} = {getattr(self, name)} is out of range.", "Give a number above 0.")


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
    def worth(self) -> np.ndarray:
        """P(open), or the learned weight; NaN for heads without a gate."""
        found = np.full(len(self.free), np.nan)
        found[self.free] = self.gates.worth()
        return found

    @property
    def n_open(self) -> int:
        """Open gates, heads without a gate not counted."""
        return int(self.keep[self.free].sum())

    def mask(self, like: Heads) -> HeadMask:
        """The hard mask."""
        gone = [head for head, kept in zip(like.index, self.keep, strict=True) if not kept]
        return HeadMask.removing(gone, like=like)

    def resting(self, like: Heads) -> dict[tuple[str, int], Tensor]:
        """The gates without noise, for `like.gate_context`."""
        return by_layer(like, _everywhere(self.gates.resting().detach(), self.free))


def gated_heads(heads: Heads, kinds: Iterable[str] | None) -> np.ndarray:
    """Which heads get a gate, (heads,) bool: all, or those of some kinds; UsageError where the model has none."""
    wanted = None if kinds is None else set(kinds)
    for kind in wanted or ():
        if kind not in KINDS:
            raise unknown_name("kind of attention", kind, KINDS)
    free = np.array([wanted is None or kind in wanted for kind, _, _ in heads.index])
    if not free.any():
        there = ", ".join(sorted({kind for kind, _, _ in heads.index}))
        raise UsageError(f"The model has no heads of the kind {'+'.join(sorted(wanted or ()))}.", f"It has {there}.")
    return free


@contextlib.contextmanager
def trained_gates(
    heads: Heads, task: Task, gates: Gates, free: np.ndarray, how: Training, progress: Progress | None = None
) -> Iterator[LearnedGates]:
    """Train gates; inside, weights that were trained along are as trained, afterwards they are as they were found.

    The loss is the mean over the batch, so that a penalty means the same whatever the batch size. Dropout is off.
    Raises DataError where no step has a loss that is a number.
    """
    how.check()
    batches = load_batches(task, how.split)
    with contextlib.ExitStack() as stack:
        if how.train == "all":
            trainable(heads.model)
            stack.enter_context(weights_restored(heads.model))
        with torch.inference_mode(False), torch.enable_grad(), evaluating(heads.model):
            losses = _train(heads, task, gates, free, how, batches, progress)
        if np.isnan(losses).all():
            raise DataError("The loss was no number in any step of the training of gates.",
                            "Try a lower learning rate, or look at the task's loss on the full model.")  # fmt: skip
        yield LearnedGates(gates, free, losses)


def _train(
    heads: Heads, task: Task, gates: Gates, free: np.ndarray, how: Training, batches: Sequence[Batch],
    progress: Progress | None,
) -> np.ndarray:  # fmt: skip
    model = heads.model
    groups: list[dict[str, Any]] = [{"params": [gates.weights], "lr": how.learning_rate}]
    if how.train == "all":
        groups.append({"params": trainable(model), "lr": how.weights_rate})
    optimizer = torch.optim.Adam(groups)
    generator = torch.Generator().manual_seed(how.seed)
    losses = np.full(how.steps, np.nan)
    with contextlib.nullcontext() if how.train == "all" else frozen(model):
        for step, batch in enumerate(in_seeded_order(batches, how.steps, how.seed)):
            drawn = gates.draw(_shape(batch, int(free.sum()), how), step / max(1, how.steps - 1), generator)
            with heads.gate_context(by_layer(heads, _everywhere(_by_row(drawn, batch), free))):
                loss = task.losses(model, batch.clone()).double().mean()
            optimizer.zero_grad()
            (loss.cpu() + gates.cost()).backward()
            if _all_finite(loss, groups):
                losses[step] = loss.item()
                optimizer.step()
            if progress:
                progress(step + 1, how.steps, f"training gates, {int(gates.keep().sum())} of {int(free.sum())} open")
    return losses


def _all_finite(loss: Tensor, groups: list[dict[str, Any]]) -> bool:
    slopes = [weights.grad for group in groups for weights in group["params"] if weights.grad is not None]
    return bool(loss.isfinite()) and all(bool(slope.isfinite().all()) for slope in slopes)


def _shape(batch: Batch, n: int, how: Training) -> tuple[int, ...]:
    return (len(dict.fromkeys(batch.examples)), n) if how.per_example else (n,)


def _by_row(drawn: Tensor, batch: Batch) -> Tensor:
    """Gates of examples (examples, heads) as gates of rows: the rows of one example share theirs."""
    if drawn.dim() == 1:
        return drawn
    place = {example: i for i, example in enumerate(dict.fromkeys(batch.examples))}
    return drawn[[place[example] for example in batch.examples]]


def _everywhere(gates: Tensor, free: np.ndarray) -> Tensor:
    """Gates of the free heads (..., free) as gates of all heads (..., heads), 1 elsewhere."""
    if free.all():
        return gates
    whole = gates.new_ones(*gates.shape[:-1], len(free))
    return whole.index_copy(-1, torch.tensor(np.flatnonzero(free)), gates)


def by_layer(heads: Heads, gates: Tensor) -> dict[tuple[str, int], Tensor]:
    """Gates (..., heads) cut into those of each (kind, layer), in the order of `heads.index`."""
    sizes = heads.heads_per_layer
    return dict(zip(sizes, gates.split(list(sizes.values()), dim=-1), strict=True))


def break_even(heads: Heads, task: Task, split: str = "select", free: np.ndarray | None = None) -> float:
    """The penalty at which removing every head would just pay: rise of the mean loss over the number of heads.

    It brings lambda into the units of the task's loss. 0.01 where the loss does not rise, or is no number.
    """
    free = np.ones(len(heads.index), dtype=bool) if free is None else free
    batches = load_batches(task, split)
    nothing = HeadMask.removing([head for head, has in zip(heads.index, free, strict=True) if has], like=heads)
    means = []
    for mask in (HeadMask.full(heads), nothing):
        with torch.no_grad(), evaluating(heads.model), heads.masked(mask):
            means.append(float(torch.cat([task.losses(heads.model, b).double() for b in batches]).mean()))
    rise = (means[1] - means[0]) / int(free.sum())
    return rise if np.isfinite(rise) and rise > 0 else 0.01


def warn_if_closed(learned: LearnedGates, remedy: str) -> None:
    """Say so where no gate stayed open: a result, but seldom the one that was wanted."""
    if learned.n_open == 0:
        warnings.warn(f"Every gate closed. {remedy}", stacklevel=3)
