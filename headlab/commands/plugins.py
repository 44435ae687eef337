"""Labels, scores, tasks and metrics of one's own, from a Python file."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load_plugins(path: str | Path) -> list[Any]:
    """Import a Python file and make the labels, scores, tasks and metrics that it defines known by their names.

    Returns them. Raises PluginError, naming the file, where it cannot be imported, defines none, or takes a name that
    is taken.
    """
    from headlab.base.registry import plugins_of_file
    from headlab.labels import LABELS
    from headlab.metrics import METRICS
    from headlab.scores import SCORES
    from headlab.tasks import TASKS

    return plugins_of_file(path, (LABELS, SCORES, TASKS, METRICS))
