"""`headlab list`: what labels, scores, tasks, metrics, statistics and models say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headlab.base.errors import unknown_name
from headlab.base.registry import Registry
from headlab.commands.plugins import registries

TOPICS = ("labels", "scores", "tasks", "metrics", "statistics", "models")
Facts = dict[str, Any]
# Models besides those of the demo.
OTHER_MODELS = {
    "HUB/NAME": "any model on the Hugging Face hub",
    "FOLDER": "a folder that save_pretrained wrote",
    "FILE.gguf": "a GGUF file that transformers can read",
}


def entries(topic: str) -> dict[str, Facts]:
    """Name -> `summary`, one line about it, and what else its list says of it; imports no torch.

    Labels come with definition, threshold, chance level, source and file; scores with their variants; metrics with
    definition and file, the loss with that of each task; tasks and models of the demo with each other. An entry point
    of another package that cannot be used comes with what is `broken` about it. Raises UsageError for an unknown topic.
    """
    if topic not in TOPICS:
        raise unknown_name("list", topic, TOPICS)
    if topic == "statistics":
        from headlab.runs.columns import STATISTICS

        return {name: {"summary": statistic.meaning} for name, statistic in STATISTICS.items()}
    if topic == "models":
        return _models()
    registry = registries()[topic]
    about: Callable[[Any], Facts] = {"labels": _label, "scores": _score, "tasks": _task, "metrics": _metric}[topic]
    broken = registry.broken()
    found: dict[str, Facts] = {}
    for name in registry.names():
        if name in broken and registry.file(name) is None:
            continue
        facts = {"summary": registry.summary(name), **about(registry.load(name))}
        if topic != "tasks":
            facts["file"] = registry.file(name)
        else:
            fitting = ", ".join(facts["models"]) or "none, it needs a model with a head of its own"
            facts["summary"] += f" (demo models: {fitting})"
        found[name.replace("_", "-") if topic == "metrics" else name] = facts
    return found | _broken(registry, broken)


def _broken(registry: Registry, broken: dict[str, str]) -> dict[str, Facts]:
    named = {f"{name} (broken)" if name in registry.built_in() else name: reason for name, reason in broken.items()}
    return {name: {"summary": reason, "broken": reason} for name, reason in named.items()}


def _label(label: Any) -> Facts:
    threshold = label.threshold if label.margin is None else f"chance + {label.margin:g}"
    return {"definition": label.definition, "source": label.source, "threshold": threshold, "chance": label.null}


def _score(score: Any) -> Facts:
    if score.suffix is not None:
        return {"variants": f"{score.name}:{score.suffix.upper()} (see `headlab list {score.suffix}s`)"}
    return {"variants": ", ".join(f"{score.name}:{suffix}" for suffix in score.variants) or None}


def _metric(metric: Any) -> Facts:
    if metric.name != "loss":
        return {"definition": metric.definition}
    return {"definition": metric.definition, "loss": {name: task.loss for name, task in _tasks().items()}}


def _task(task: Any) -> Facts:
    return {"models": list(task.demo_models), "loss": task.loss}


def _tasks() -> dict[str, Any]:
    registry = registries()["tasks"]
    broken = registry.broken()
    return {name: registry.load(name) for name in registry.names() if name not in broken or registry.file(name)}


def _models() -> dict[str, Facts]:
    """Demo models with the tasks that they are good for, and the other ways to name a model."""
    from headlab.models import demo_models

    found: dict[str, Facts] = {}
    for model, about in demo_models().items():
        tasks = [name for name, task in _tasks().items() if model in task.demo_models]
        fitting = ", ".join(tasks) or "none yet, only inspect and dump"
        found[model] = {"summary": f"{about}; tasks: {fitting}", "tasks": tasks}
    return found | {model: {"summary": about, "tasks": None} for model, about in OTHER_MODELS.items()}
