"""`headlab list`: the names that other commands take, found without loading torch."""

from __future__ import annotations

from typing import Annotated

import typer

from headlab.cli.options import Json, TalkOptions
from headlab.cli.output import print_json
from headlab.errors import unknown_name

TOPICS = ("labels", "scores", "tasks", "metrics", "statistics", "models")
Topic = Annotated[str | None, typer.Argument(metavar="[" + "|".join(TOPICS) + "]", show_default=False)]


def list_names(talk: TalkOptions, topic: Topic = None, json: Json = False) -> None:
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
        for entry, summary in lines.items():
            print(f"{'  ' if topic is None else ''}{entry:<{width}}  {summary}".rstrip())


def entries(topic: str) -> dict[str, str]:
    """Name -> one line about it."""
    from headlab.registry import Registry

    if topic == "statistics":
        return _statistics()
    if topic == "models":
        return _models()
    registry = {
        "labels": Registry("headlab.labels", "label"),
        "scores": Registry("headlab.scores", "score"),
        "tasks": Registry("headlab.tasks", "task", hyphenated=True),
        "metrics": Registry("headlab.tasks.metrics", "metric", hyphenated=True),
    }[topic]
    return {name: registry.summary(name) for name in registry.names()}


def _statistics() -> dict[str, str]:
    from headlab.tables import STATISTICS

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
