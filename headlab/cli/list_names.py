"""`headlab list`: the names that other commands take, found without loading torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headlab
from headlab.base.errors import unknown_name
from headlab.cli.options import Json, Plugins, TalkOptions
from headlab.cli.output import print_json

if TYPE_CHECKING:
    from headlab.base.registry import Registry

TOPICS = ("labels", "scores", "tasks", "metrics", "statistics", "models")
Topic = Annotated[str | None, typer.Argument(metavar="[" + "|".join(TOPICS) + "]", show_default=False)]


# The loss of each task for one example: what the metric `loss` averages and the scores differentiate.
LOSSES = {
    "classification": "-ln p(right class), in nats",
    "lm": "mean of -ln p over the predicted tokens of a window, in nats; the task reports it as perplexity",
    "minimal-pairs": "ln p(bad sentence) - ln p(good sentence), in nats; below 0 where the good one is more probable",
    "probe": "-ln p(right class) of the fixed probe, in nats",
    "translation": "mean of -ln p over the tokens of the reference, in nats; the metric nll weighs all tokens the same",
}
# What the demo checkpoints can be used for; classification has no demo checkpoint.
FITS = {
    "demo:minilm": ("probe",),
    "demo:smollm2": ("lm", "minimal-pairs", "probe"),
    "demo:distilbert-tagger": ("probe",),
    "demo:firefox-en-pt": ("translation",),
    "demo:firefox-pt-en": ("translation",),
    "demo:planted-encoder": (),
    "demo:planted-decoder": ("lm",),  # on texts of its own language
}
# Of each entry, what is printed below it where its list alone is asked for.
DETAILS = ("definition", "threshold", "chance", "source", "variants", "file", "loss")


def list_names(talk: TalkOptions, topic: Topic = None, plugin: Plugins = None, json: Json = False) -> None:
    """Labels, scores, tasks, metrics, statistics and models that there are; all of them without an argument."""
    if topic is not None and topic not in TOPICS:
        raise unknown_name("list", topic, TOPICS)
    found = {name: entries(name) for name in (TOPICS if topic is None else (topic,))}
    if json:
        print_json(found)
        return
    for name, lines in found.items():
        if topic is None:
            print(f"{name}:")
        width = max((len(entry) for entry in lines), default=0)
        for entry, facts in lines.items():
            print(f"{'  ' if topic is None else ''}{entry:<{width}}  {facts['summary']}".rstrip())
            if topic is not None:
                _print_details(facts)


def _print_details(facts: dict[str, Any]) -> None:
    for name in DETAILS:
        value = facts.get(name)
        if isinstance(value, dict):
            for task, meaning in value.items():
                print(f"    {name} of {task}: {meaning}")
        elif value is not None:
            print(f"    {name}: {value}")


def entries(topic: str) -> dict[str, dict[str, Any]]:
    """Name -> `summary`, one line about it, and what else its list says of it.

    Labels come with definition, threshold, chance level, source and file; scores with their variants; metrics with
    definition and file, the loss with that of each task; tasks and models of the demo with each other.
    """
    if topic == "statistics":
        return {name: {"summary": summary} for name, summary in _statistics().items()}
    if topic == "models":
        return {
            name: {"summary": _with_tasks(name, about), "tasks": FITS.get(name)} for name, about in _models().items()
        }
    from headlab.base.registry import Registry
    from headlab.scores import SCORES

    registry: Registry[Any] = {
        "labels": Registry("headlab.labels", "label"),
        "scores": SCORES,
        "tasks": Registry("headlab.tasks", "task", hyphenated=True),
        "metrics": Registry("headlab.metrics", "metric", besides=("metric", "overlap"), hyphenated=True),
    }[topic]
    return {name: {"summary": registry.summary(name)} | _facts(topic, registry, name) for name in registry.names()}


def _facts(topic: str, registry: Registry, name: str) -> dict[str, Any]:
    """What a list says beside the summary."""
    from headlab.cli.label_facts import label_facts, metric_definition

    file = Path(*registry.package.split("."), f"{name.replace('-', '_')}.py")
    path = Path(headlab.__file__).parent.parent / file
    if topic == "labels":
        return label_facts(path) | {"file": file.as_posix()}
    if topic == "metrics":
        facts = {"definition": metric_definition(path), "file": file.as_posix()}
        return facts | ({"loss": LOSSES} if name == "loss" else {})
    if topic == "tasks":
        models = [model for model, tasks in FITS.items() if name in tasks]
        fitting = ", ".join(models) or "none, it needs a model with a head of its own"
        summary = f"{registry.summary(name)} (demo models: {fitting})"
        return {"summary": summary, "models": models, "loss": LOSSES.get(name)}
    return {"variants": _variants(name), "file": registry.file(name)}


def _variants(name: str) -> str | None:
    """The names that a score also goes by, `gradient:per-token, gradient:layer-normalised`."""
    from headlab.scores import SCORES

    score = SCORES.load(name)
    setting = score.suffix
    if setting is not None:
        return f"{name}:{setting.upper()} (see `headlab list {setting}s`)"
    return ", ".join(f"{name}:{suffix}" for suffix in score.variants) or None


def _with_tasks(name: str, about: str) -> str:
    if name not in FITS:
        return about
    return f"{about}; tasks: {', '.join(FITS[name]) or 'none yet, only inspect and dump'}"


def _statistics() -> dict[str, str]:
    from headlab.runs.tables import STATISTICS

    return {name: MEANINGS.get(name, "") for name in STATISTICS}


MEANINGS = {
    "entropy": "entropy of the attention row, in nats",
    "entropy_norm": "entropy divided by the logarithm of the number of visible keys, 0 to 1",
    "max_weight": "largest weight in the row",
    "first_mass": "weight on the first token",
    "separator_mass": "weight on separator tokens",
    "self_mass": "weight on the token itself",
    "prev_mass": "weight on the token before",
    "next_mass": "weight on the token after",
    "distance": "mean distance between query and key, in tokens",
    "output_norm": "norm of what the head adds to the residual stream",
    "sink_logit_mass": "weight that a learned sink takes out of the row",
}


def _models() -> dict[str, str]:
    from headlab.models import demo_models

    return demo_models() | {
        "HUB/NAME": "any model on the Hugging Face hub",
        "FOLDER": "a folder that save_pretrained wrote",
        "FILE.gguf": "a GGUF file that transformers can read",
    }
