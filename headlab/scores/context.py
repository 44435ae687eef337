"""What a score is called with: a model's heads, a task, and how both are looked at."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headlab.base.progress import Progress, Steps

if TYPE_CHECKING:
    import pandas as pd

    from headlab.attention.heads import Heads
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task


@dataclass(frozen=True)
class ScoreContext:
    """The heads to score, the task that says what they are worth, and the examples that a score may see.

    `split` names those examples. `ablation` is what takes the place of a removed head, for scores that remove heads,
    `seed` for what is drawn at random. `table` is a head table of the same split, for scores that are columns of it.
    What `journal` holds is not computed again, and what is computed goes there at once.
    """

    heads: Heads
    task: Task
    split: str = "select"
    ablation: str = "zero"
    seed: int = 0
    progress: Progress | None = None
    table: pd.DataFrame | None = None
    journal: MutableMapping[str, list] | None = None

    @property
    def n_examples(self) -> int:
        """Number of examples in the split."""
        return len(self.task.split(self.split))

    def batches(self) -> Iterator[Batch]:
        """The batches of the split; DataError where there are none."""
        from headlab.tasks.running.batches import batches_of

        return batches_of(self.task, self.split)

    @cached_property
    def replacements(self) -> Any:
        """What takes the place of removed heads (`means` of Heads.masked), from the same split, made once."""
        return self.heads.replacements(self.ablation, self.batches(), seed=self.seed)

    def steps(self, total: int, what: str) -> Steps:
        """A counter that tells `progress` how far a score has come."""
        return Steps(self.progress, total, what)
