"""What a head is worth for: one file per task; a task opens data, yields batches, measures loss and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headlab.base.errors import UsageError
from headlab.base.registry import Registry

if TYPE_CHECKING:
    from headlab.models import Checkpoint
    from headlab.tasks.running.evaluation import Evaluation as Evaluation
    from headlab.tasks.running.task import Task as Task


def _is_task(plugin: Any) -> bool:
    """A class that follows the contract of tasks."""
    return isinstance(plugin, type) and all(hasattr(plugin, name) for name in ("name", "purpose", "losses"))


TASKS: Registry[Any] = Registry("headlab.tasks", "task", _is_task, hyphenated=True)

_OPENING = ("device", "dtype", "revision", "trust_remote_code")


def task(name: str, model: str | Checkpoint, **options: Any) -> Task:
    """A task over a model: `task("minimal-pairs", model="demo:smollm2", limit=400)`.

    `model` is a name, opened with the head that the task needs, or an opened Checkpoint. Options of every task: data
    (a file, several, or a folder; the package's own texts without it), limit, batch_size, max_length (tokens), seed,
    split ("50:50" in per cent or "40:160" in examples), text_column, label_column, train_data (probe); device, dtype,
    revision and trust_remote_code are for opening the model. Raises UsageError for unknown names and options,
    DataError for unusable data.
    """
    kind = TASKS.load(name)
    opening = {key: options.pop(key) for key in _OPENING if key in options}
    settings = kind.read_options(options)  # before the model is opened: a misspelt option should not cost a minute
    if isinstance(model, str):
        from headlab.models import open_model

        model = open_model(model, purpose=kind.purpose, **opening)
    if not hasattr(model, "tokenizer"):
        raise UsageError(
            f"A task needs the name of a model or an opened checkpoint, not {type(model).__name__}.",
            "Give a name, or what headlab.open_model returns.",
        )
    return kind(model, settings)


def __getattr__(name: str) -> Any:
    """`Task` and `Evaluation` on first use, since their modules import torch."""
    if name == "Task":
        from headlab.tasks.running.task import Task

        return Task
    if name == "Evaluation":
        from headlab.tasks.running.evaluation import Evaluation

        return Evaluation
    raise AttributeError(f"module 'headlab.tasks' has no attribute {name!r}")
