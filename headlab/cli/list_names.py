"""`headlab list`: the names that other commands take, found without loading torch."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headlab.cli.options import Json, Plugins, TalkOptions
from headlab.cli.output import print_json
from headlab.commands.list import TOPICS, entries

Topic = Annotated[str | None, typer.Argument(metavar="[" + "|".join(TOPICS) + "]", show_default=False)]

# Of each entry, what is printed below it where its list alone is asked for.
DETAILS = ("definition", "threshold", "chance", "source", "variants", "file", "loss")


def list_names(talk: TalkOptions, topic: Topic = None, plugin: Plugins = None, json: Json = False) -> None:
    """Labels, scores, tasks, metrics, statistics and models that there are; all of them without an argument."""
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
            print(f"    {name}: {value:.3g}" if isinstance(value, float) else f"    {name}: {value}")
