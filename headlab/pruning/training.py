"""Light fine-tuning after a cut: the remaining weights are trained without the removed heads, judged, and put back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headlab.base.errors import UsageError
from headlab.base.masks import HeadMask
from headlab.models.state import evaluating
from headlab.scores.gates.weights import in_seeded_order, load_batches, require_steps, trainable, weights_restored

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

Progress = Callable[[int, int, str], None]


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
        if not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"A learning rate of {self.learning_rate} is out of range.", "Give a number above 0.")

    def signature(self) -> dict[str, Any]:
        """What the numbers depend on."""
        return {"finetuning": asdict(self)}


@contextlib.contextmanager
def finetuned(
    heads: Heads, task: Task, mask: HeadMask, how: Finetuning, *, ablation: str = "zero",
    means: Any = None, progress: Progress | None = None,
) -> Iterator[np.ndarray]:  # fmt: skip
    """Inside, the model runs without the removed heads, after training without them; afterwards it is as it was found.

    Parameters, buffers and their gradients come back bit for bit, after an exception too. Gives the loss of every
    step, NaN for steps that were passed over because it was no number. With the full mask nothing is removed, and
    what the training alone does can be seen. Raises UsageError for a model whose weights are all frozen.
    """
    how.check()
    batches = load_batches(task, how.split)
    weights = trainable(heads.model)
    with weights_restored(heads.model), _without(heads, mask, ablation, means):
        optimizer = torch.optim.Adam(weights, lr=how.learning_rate)
        losses = np.full(how.steps, np.nan)
        with torch.inference_mode(False), torch.enable_grad(), evaluating(heads.model):
            for step, batch in enumerate(in_seeded_order(batches, how.steps, how.seed)):
                loss = task.losses(heads.model, batch.clone()).double().mean()
                optimizer.zero_grad()
                loss.backward()
                if _finite(loss, weights):
                    losses[step] = loss.item()
                    optimizer.step()
                if progress:
                    progress(step + 1, how.steps, "fine-tuning")
        optimizer.zero_grad()
        yield losses


def _without(heads: Heads, mask: HeadMask, ablation: str, means: Mapping | None) -> Any:
    return heads.masked(mask, ablation, means) if mask.removed else contextlib.nullcontext()


def _finite(loss: torch.Tensor, weights: list[torch.nn.Parameter]) -> bool:
    return bool(loss.isfinite()) and all(bool(w.grad.isfinite().all()) for w in weights if w.grad is not None)
