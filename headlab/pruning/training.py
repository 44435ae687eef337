"""Light fine-tuning after a cut: the remaining weights are trained without the removed heads, judged, and put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.base.masks import HeadMask
from headlab.scores.gates.settings import require_rate, require_steps
from headlab.scores.measures.stepping import take_steps, trainable, weights_restored
from headlab.tasks.running.batches import batches_of

if TYPE_CHECKING:
    from torch import Tensor

    from headlab.attention.heads import Heads
    from headlab.base.progress import Progress
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task


@dataclass(frozen=True)
class Finetuning:
    """So many steps of Adam on the task's mean loss over batches of one split, in a seeded order, without dropout."""

    steps: int
    learning_rate: float = 2e-5
    seed: int = 0
    split: str = "select"

    def check(self) -> None:
        """Raise UsageError for values that cannot be."""
        require_steps(self.steps)
        require_rate("learning rate", self.learning_rate)

    def signature(self) -> dict[str, Any]:
        """What the numbers depend on."""
        return {"finetuning": asdict(self)}


@contextlib.contextmanager
def finetuned(
    heads: Heads,
    task: Task,
    mask: HeadMask,
    how: Finetuning,
    *,
    ablation: str = "zero",
    means: Any = None,
    progress: Progress | None = None,
) -> Iterator[np.ndarray]:
    """Inside, the model runs without the removed heads, after training without them; afterwards it is as it was found.

    Parameters, buffers and their gradients come back bit for bit, after an exception too. Gives the loss of every
    step, NaN for steps that were passed over because it was no number. With the full mask nothing is removed, and
    what the training alone does can be seen. Raises UsageError for a model whose weights are all frozen.
    """
    how.check()
    model, batches = heads.model, list(batches_of(task, how.split))
    groups = [{"params": trainable(model), "lr": how.learning_rate}]

    def loss_of(step: int, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = task.losses(model, batch).double().mean()
        return loss, loss

    def report(step: int) -> None:
        if progress:
            progress(step + 1, how.steps, "fine-tuning")

    without = heads.masked(mask, ablation, means) if mask.removed else contextlib.nullcontext()
    with weights_restored(model), without:
        yield take_steps(model, groups, batches, how.steps, how.seed, loss_of, report)
