"""What a head is worth for: one file per task; a task opens data, yields batches, measures loss and metrics."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import lazy_loader

from headlab.base.errors import UsageError, unknown_name
from headlab.base.registry import Registry

if TYPE_CHECKING:
    from headlab.models import Checkpoint
    from headlab.tasks.running.contract import Task as Task
    from headlab.tasks.running.evaluation import Evaluation as Evaluation
    from headlab.tasks.running.measuring import evaluate as evaluate
    from headlab.tasks.running.text_task import TextTask as TextTask

# On first use: a list of names needs no numpy.
_HOMES = {
    "running.contract": ["Task"],
    "running.evaluation": ["Evaluation"],
    "running.measuring": ["evaluate"],
    "running.text_task": ["TextTask"],
}
__getattr__, _, _ = lazy_loader.attach(__name__, submod_attrs=_HOMES)


def _is_task(plugin: Any) -> bool:
    """A class that follows the contract of tasks."""
    return isinstance(plugin, type) and all(hasattr(plugin, name) for name in ("name", "purpose", "losses"))


TASKS: Registry[type[Task]] = Registry("headlab.tasks", "task", _is_task, hyphenated=True)

_OPENING = ("device", "dtype", "revision", "trust_remote_code")


def task(name: str | type[Task], model: str | Checkpoint, **options: Any) -> Task:
    """A task over a model: `task("minimal-pairs", model="demo:smollm2", limit=400)`, `task(MyTask, model)`.

    `name` may be a class of one's own that follows the contract, `headlab.tasks.Task`: it is called with the
    checkpoint and those options that it takes. `model` is a name, opened with the head that the task needs, or an
    opened Checkpoint.
    Options of every task that comes with headlab: data (a file, several, or a folder; the package's own texts without
    it), limit, batch_size, max_length (tokens), seed, split ("50:50" in per cent or "40:160" in examples),
    text_column, label_column, train_data (probe); device, dtype, revision and trust_remote_code are for opening the
    model. Raises UsageError for unknown names and options, DataError for unusable data.
    """
    plugin: Any = TASKS.load(name) if isinstance(name, str) else name
    if not _is_task(plugin):
        raise UsageError(f"{plugin!r} is no task.", "Give a name, or a class that follows headlab.tasks.Task.")
    opening = {key: options.pop(key) for key in _OPENING if key in options}
    # Before the model is opened: a misspelt option should not cost a minute.
    reads = hasattr(plugin, "read_options")
    settings = {"options": plugin.read_options(options)} if reads else _taken(plugin, options)
    try:
        inspect.signature(plugin).bind(model, **settings)
    except TypeError as error:
        raise UsageError(f"The task {plugin.name!r} cannot be made: {error}.", "Give it the options it has.") from error
    if isinstance(model, str):
        from headlab.models import open_model

        model = open_model(model, purpose=plugin.purpose, **opening)
    if not hasattr(model, "tokenizer"):
        cause = f"A task needs the name of a model or an opened checkpoint, not {type(model).__name__}."
        raise UsageError(cause, "Give a name, or what headlab.open_model returns.")
    return plugin(model, **settings)


def _taken(plugin: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a class of somebody's own takes; those that commands always give may be at their defaults.

    Raises UsageError for others.
    """
    from headlab.tasks.running.options import Options

    parameters = list(inspect.signature(plugin).parameters.values())[1:]  # the first is the checkpoint
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return options
    known = [parameter.name for parameter in parameters]
    defaults = vars(Options())
    for name, value in options.items():
        if name not in known and (name not in defaults or value != defaults[name]):
            raise unknown_name(f"option of the task {plugin.name!r}:", name, known)
    return {name: value for name, value in options.items() if name in known}
