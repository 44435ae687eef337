"""The typer application: one function per command, each imported when the command line is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from headlab.cli import demo, dump, inspect, list_names, report, sweep
from headlab.cli.options import expand

HELP = "What does each attention head look at, does it matter, and can it go?"
SETTINGS = {"help_option_names": ["-h", "--help"]}
COMMANDS: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("inspect", inspect.inspect, "Heads per layer and kind, and what was proven."),
    ("dump", dump.dump, "Statistics and labels of every head, maps on request."),
    ("sweep", sweep.sweep, "What heads are worth, and what removing them costs."),
    ("report", report.report, "One self-contained HTML file from runs."),
    ("list", list_names.list_names, "Labels, scores, tasks, metrics, statistics, models."),
    ("demo", demo.demo, "The main job on three small real models."),
)


def application() -> typer.Typer:
    """The application with all its commands, in the order of the contract."""
    app = typer.Typer(
        name="headlab",
        help=HELP,
        add_completion=False,
        context_settings=SETTINGS,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(main)
    for name, command, summary in COMMANDS:
        app.command(name, short_help=summary, context_settings=SETTINGS)(expand(command))
    return app


def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and library notices.")] = False,
) -> None:
    """What does each attention head look at, does it matter, and can it go?"""
    # Both options are read in headlab.cli.run, wherever on the line they stand; here they are declared for the help.
