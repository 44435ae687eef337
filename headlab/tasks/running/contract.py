"""What a task is: everything that scores, sweeps and dumps ask of one, whoever wrote it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from headlab.base.progress import Progress
    from headlab.models import Batch, Checkpoint
    from headlab.tasks.running.evaluation import Evaluation


class Task(Protocol):
    """A way of judging a model: examples in batches, a differentiable loss for each, and metrics.

    A class of one's own need not inherit from this; `headlab.testing.check_task` tries whether it follows it. Tasks
    that read texts have most of it from `headlab.tasks.TextTask`.
    """

    name: ClassVar[str]
    """How the task is called on the command line; hyphens between words."""
    title: ClassVar[str]
    """A few words for pages."""
    text: ClassVar[str]
    """One sentence for people."""
    definition: ClassVar[str]
    """What is measured on one example."""
    source: ClassVar[str]
    """Where the way of judging comes from: papers, data sets."""
    loss: ClassVar[str]
    """The loss of one example in words, with its unit."""
    purpose: ClassVar[str]
    """What the model is opened for: the `purpose` of `headlab.open_model`."""
    demo_models: ClassVar[tuple[str, ...]]
    """The models of the demo that the task can be tried on, `demo:smollm2`."""
    metrics: tuple[str, ...]
    """Names of metrics that are worked out from the statistics, the main one first."""

    @property
    def model(self) -> Checkpoint:
        """The checkpoint that is judged, what `headlab.Heads(task.model)` takes."""
        ...

    @property
    def network(self) -> nn.Module:
        """The torch module of the checkpoint."""
        ...

    def split(self, name: str) -> np.ndarray:
        """Sorted ids of the examples in "all", "select" or "report"; the last two share none.

        Raises DataError where there are none, UsageError for another name.
        """
        ...

    def batches(self, split: str = "all", examples: Collection[int] | None = None) -> Iterator[Batch]:
        """The split's examples, or those of them whose ids are given, in batches on the model's device.

        The same on every call. `batch.examples` has the id of each row; an example's rows are in one batch.
        """
        ...

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Loss of each example of the batch, (examples,), as they first appear: differentiable, lower is better."""
        ...

    def statistics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """What the metrics are worked out from: columns of one number an example, (examples,) each.

        Sums over examples must be enough: `loss` and `examples` (ones) for the metric loss, say.
        """
        ...

    def evaluate(self, split: str = "all", progress: Progress | None = None) -> Evaluation:
        """Statistics of every example and the metrics, for the model as it is now, removed heads included."""
        ...

    def signature(self) -> dict[str, Any]:
        """Everything that the numbers depend on, in JSON types; a run folder is resumed only under the same."""
        ...

    def keeping(self, folder: str | Path, key: str) -> AbstractContextManager[None]:
        """Inside, what an evaluation makes beside numbers (translations) is kept in a run folder under a key.

        A task that makes none may leave this out.
        """
        ...
