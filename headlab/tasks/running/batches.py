"""The batches of a task's split, and names for what they hold; imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headlab.base.errors import DataError

if TYPE_CHECKING:
    from headlab.models.texts.batch import Batch
    from headlab.tasks.running.contract import Task


def batches_of(task: Task, split: str) -> Iterator[Batch]:
    """The batches of a split; raises DataError where there are none."""
    batch = None
    for batch in task.batches(split):
        yield batch
    if batch is None:
        raise DataError(f"The split {split!r} has no examples.", "Give the task more data or another split.")


def batch_name(batch: Batch) -> str:
    """A name for what a batch holds, in a journal: other batches, of another size say, have other names."""
    ids = ",".join(map(str, batch.example_ids))
    return f"examples {hashlib.sha256(ids.encode()).hexdigest()[:16]}"


def batching(task: Task, split: str) -> str:
    """A name for how a split is cut into batches: what is trained, a step a batch, depends on it."""
    names = " ".join(batch_name(batch) for batch in batches_of(task, split))
    return hashlib.sha256(names.encode()).hexdigest()[:16]
