"""A task's evaluations, kept in a run folder so that none is made twice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headlab.runs.evaluations import MaskedEvaluation, read_evaluation, write_evaluation

if TYPE_CHECKING:
    from headlab.tasks import Task


def evaluated(
    task: Task,
    key: str,
    split: str,
    folder: str | Path | None,
    change: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> MaskedEvaluation:
    """The evaluation of that key: read where the folder holds it, else made inside `change()`, and written at once.

    What `change` does before it returns a context (means of heads, say) is not in the evaluation's seconds.
    """
    found = None if folder is None else read_evaluation(folder, key)
    if found is not None:
        return found
    changed = change()
    keeping = getattr(task, "keeping", None)  # which a task of somebody's own may lack
    with contextlib.nullcontext() if folder is None or keeping is None else keeping(folder, key):
        start = time.perf_counter()
        with changed:
            examples = task.evaluate(split).examples
        found = MaskedEvaluation(key, examples, time.perf_counter() - start)
    if folder is not None:
        write_evaluation(folder, found)
    return found
