"""All registries of plugins together, and files of people's own plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headlab.base.registry import Registry, plugins_of_file


def registries() -> dict[str, Registry[Any]]:
    """The registries by the topic of `headlab list`: labels, scores, tasks, metrics; imports no torch."""
    from headlab.labels import LABELS
    from headlab.metrics import METRICS
    from headlab.scores import SCORES
    from headlab.tasks import TASKS

    return {"labels": LABELS, "scores": SCORES, "tasks": TASKS, "metrics": METRICS}


def load_plugins(path: str | Path) -> list[Any]:
    """Import a Python file and make every label, score, task and metric in it known by its name; returns them.

    A label or metric is an instance, a score or task a class. Loading a file again replaces what it brought before.
    Raises PluginError, naming the file, where it cannot be imported, holds no plugin, or takes a name that is taken.
    """
    return plugins_of_file(path, list(registries().values()))
