"""All registries of plugins together, and files of people's own plugins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headlab.base.registry import Registry, plugins_of_file
from headlab.runs.plugin_facts import facts_of


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


def facts_of_own(columns: Iterable[str]) -> dict[str, Any]:
    """`{"facts": {column: what its plugin says}}` for the columns (and metrics) whose plugin did not come with headlab.

    Goes into the notes of meta.json, so that a report can be made where the plugin is not; empty where there is none.
    """
    from headlab.labels import LABELS, described
    from headlab.metrics import METRICS
    from headlab.scores import SCORES

    found, columns = {}, set(columns)
    for column in sorted(columns):
        base = column.partition(":")[0]
        if base.startswith("score_") and _is_own(SCORES, score := base.removeprefix("score_")):
            found[base] = facts_of(SCORES.load(score))
        elif _is_own(LABELS, base) and f"{column}_score" in columns:
            found[column] = facts_of(described(column))
        elif _is_own(METRICS, column):
            found[column] = facts_of(METRICS.load(column))
    return {"facts": found} if found else {}


def _is_own(registry: Registry[Any], name: str) -> bool:
    return name in registry.names() and name not in registry.built_in()
