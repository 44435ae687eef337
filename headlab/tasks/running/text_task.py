"""The base of tasks that read texts: examples from data, splits, batches, losses, evaluation, signature."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headlab.base.errors import DataError, UsageError, unknown_name
from headlab.models.texts.rows import row_limit
from headlab.models.texts.special_tokens import added_tokens
from headlab.tasks.data.splits import NAMES, split_positions
from headlab.tasks.running.options import Options

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headlab.base.progress import Progress
    from headlab.models import Batch, Checkpoint
    from headlab.tasks.running.evaluation import Evaluation
    from headlab.tasks.running.examples import Example


@dataclass(frozen=True)
class Loaded:
    """What a task read: its examples, where they came from, and what was split or left out on the way."""

    examples: list[Example]
    name: str
    sha256: str
    counts: Mapping[str, int] = field(default_factory=dict)


class TextTask:
    """Most of the contract of a task (`headlab.tasks.Task`): a subclass says what it reads, `load`, and what it
    measures, `statistics`.

    Modules of torch are imported where they are needed, so that tasks are listed without it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    text: ClassVar[str]
    definition: ClassVar[str]
    source: ClassVar[str]
    loss: ClassVar[str]
    purpose: ClassVar[str]
    demo_models: ClassVar[tuple[str, ...]] = ()
    metrics: tuple[str, ...]
    unused: ClassVar[tuple[str, ...]] = ("train_data",)  # options that mean nothing to the task
    max_tokens: int = 4096  # padded tokens in a batch, at most (one example always fits)

    def __init__(self, checkpoint: Checkpoint, options: Options | None = None, **settings: Any) -> None:
        from headlab.models.checkpoint import require_known_ids

        self.checkpoint = checkpoint
        self.options = self.read_options(settings) if options is None else options
        if checkpoint.tokenizer is None:
            raise UsageError(
                f"The model {checkpoint.name!r} has no tokenizer, and the task {self.name!r} reads text.",
                "Open a checkpoint that comes with its tokenizer.",
            )
        self.frame = added_tokens(checkpoint.tokenizer)
        self.max_length = row_limit(checkpoint, self.frame, self.options.max_length)
        self._loaded = self.load()
        highest = max((int(row.ids.max()) for e in self._loaded.examples for row in e.rows if len(row.ids)), default=0)
        require_known_ids(checkpoint, highest)
        self._splits: dict[str, np.ndarray] | None = None
        self.prepare()

    @classmethod
    def read_options(cls, settings: Mapping[str, Any]) -> Options:
        """Options from keyword arguments; UsageError for unknown ones."""
        return Options.of(cls.name, settings, cls.unused)

    # What a subclass provides

    def load(self) -> Loaded:
        """Read the data and turn it into examples; raises DataError for data that cannot be used."""
        raise NotImplementedError

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Per-example columns, each (examples of the batch,): `loss`, differentiable, and the metrics' columns."""
        raise NotImplementedError

    def prepare(self) -> None:
        """What must happen once, on the full model, before anything is measured."""

    def keeping(self, folder: str | Path, key: str) -> contextlib.AbstractContextManager[None]:
        """Inside, what an evaluation makes beside numbers is kept in a run folder under the evaluation's key.

        Most tasks make nothing; translations are kept, so that a stopped evaluation does not decode them again.
        """
        return contextlib.nullcontext()

    def collate(self, examples: Sequence[Example]) -> Batch:
        """A batch of examples; a task whose rows are not of one text each makes it otherwise."""
        from headlab.tasks.running.collating import collate

        return collate(examples, self.checkpoint, pad_side=self.options.pad_side)

    # What every task does

    @property
    def model(self) -> Checkpoint:
        """The checkpoint that the task runs."""
        return self.checkpoint

    @property
    def network(self) -> nn.Module:
        """The torch module that the task runs."""
        return self.checkpoint.model

    @property
    def n_examples(self) -> int:
        """Number of examples, all splits together."""
        return len(self._loaded.examples)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._loaded.name}: {self.n_examples} examples, split {self.options.split})"

    @property
    def counts(self) -> dict[str, int]:
        """What was done to the data: texts split because they were too long, texts left out as too short, rows."""
        return {**self._loaded.counts, "n_rows": sum(len(example.rows) for example in self._loaded.examples)}

    def split(self, name: str) -> np.ndarray:
        """Sorted ids of the examples in "all", "select" or "report"; DataError where there are none."""
        if name not in NAMES:
            raise unknown_name("split", name, NAMES)
        places = self._positions(name)
        if not len(places):
            raise DataError(
                f"The split {name!r} of {self.n_examples} examples is empty (split={self.options.split}).",
                "Give at least 2 examples, a higher limit, or another split.",
            )
        return np.array([self._loaded.examples[place].id for place in places])

    def batches(self, split: str = "all", examples: Collection[int] | None = None) -> Iterator[Batch]:
        """The split's examples as batches of like length on the model's device; the same on every call.

        `examples` are ids (as in `split`) of those to take; the others are left out.
        """
        from headlab.models.state import device_of
        from headlab.tasks.running.collating import grouped

        self.split(split)
        asked = None if examples is None else set(map(int, examples))
        of_split = (self._loaded.examples[place] for place in self._positions(split))
        chosen = [example for example in of_split if asked is None or example.id in asked]
        device = device_of(self.network)
        for part in grouped(chosen, self.options.batch_size, self.max_tokens):
            yield self.collate(part).to(device)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Loss per example, (examples of the batch,), in nats: differentiable, lower is better.

        A batch may hold several rows of one example (`batch.examples` names the example of each row); the losses come
        in the order in which the examples first appear.
        """
        from headlab.models.state import device_of

        return self.statistics(model, batch.to(device_of(model)))["loss"]

    def evaluate(self, split: str = "all", progress: Progress | None = None) -> Evaluation:
        """Measure the model as it is now, masks included; `progress` is called with (examples done, in all)."""
        from headlab.tasks.running.measuring import evaluate

        return evaluate(self, split, progress)

    def signature(self) -> dict[str, Any]:
        """Everything that the numbers depend on; batch size is not among it."""
        from headlab.metrics import metric

        options = self.options
        return {
            "task": self.name,
            "data": self._loaded.name,
            "data_sha256": self._loaded.sha256,
            "columns": [options.text_column, options.label_column],
            "n_examples": self.n_examples,
            "limit": options.limit,
            "split": options.split,
            "seed": options.seed,
            "max_length": self.max_length,
            "counts": self.counts,
            "metrics": {name: metric(name).definition for name in self.metrics},
            "model": self.checkpoint.describe(),
        }

    def _positions(self, name: str) -> np.ndarray:
        if self._splits is None:
            groups = [example.group for example in self._loaded.examples]
            self._splits = split_positions(groups, self.options.split, self.options.seed)
        return self._splits[name]
