"""The typer application: one function per command, each imported when the command line is built."""

from __future__ import annotations

from typing import Annotated

import typer

import headlab
from headlab.cli import demo, dump, inspect, list_names, report, sweep
from headlab.cli.options import expand

HELP = "What does each attention head look at, does it matter, and can it go?"
SETTINGS = {"help_option_names": ["-h", "--help"]}


def application() -> typer.Typer:
    """The application with all its commands, in the order of the contract."""
    app = typer.Typer(
        name="headlab",
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        context_settings=SETTINGS,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(main)
    for name, command in (
        ("inspect", inspect.inspect),
        ("dump", dump.dump),
        ("sweep", sweep.sweep),
        ("report", report.report),
        ("list", list_names.list_names),
        ("demo", demo.demo),
    ):
        app.command(name, context_settings=SETTINGS)(expand(command))
    return app


def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and library notices.")] = False,
) -> None:
    """What does each attention head look at, does it matter, and can it go?"""
    if version:
        print(headlab.__version__)
        raise typer.Exit
