"""The options of the command line: those of the requests, and what every command says and asks besides."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import shlex
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headlab.commands import plugins
from headlab.commands.options import Option, Request, flag, options_of

Options = dict[str, Any]  # the options of the requests it is annotated with, by name, as they were given
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of a table.")]


def load_plugins(files: list[Path] | None) -> list[Path] | None:
    """Make the plugins in these files known before any other option is read."""
    for file in files or ():
        plugins.load_plugins(file)
    return files


PLUGIN_HELP = "Python file with a label, score, task or metric of your own; may be repeated."
Plugins = Annotated[list[Path] | None, typer.Option("--plugin", help=PLUGIN_HELP, callback=load_plugins, is_eager=True)]


@dataclass
class TalkOptions:
    """How much a command says."""

    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.", rich_help_panel="Run")] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks and library notices.", rich_help_panel="Run")
    ] = False


def expand(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn each parameter that stands for several options into those options, and hand the command what was given.

    `Annotated[Options, Request, ...]` stands for the options of these requests, which come as one dictionary; a
    dataclass stands for its fields.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[Callable[..., Any], list[inspect.Parameter]]] = {}
    parameters: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if typing.get_origin(hint) is Annotated and typing.get_args(hint)[0] == Options:
            groups[name] = dict, [p for request in hint.__metadata__ for p in _options_as_parameters(request)]
        elif dataclasses.is_dataclass(hint):
            groups[name] = hint, _fields_as_parameters(hint)  # type: ignore[assignment]
        own = groups[name][1] if name in groups else [parameter.replace(annotation=hint, kind=_KEYWORD)]
        parameters |= {p.name: p for p in own if p.name not in parameters}

    @functools.wraps(command)
    def expanded(**values: Any) -> Any:
        for name, (make, own) in groups.items():
            values[name] = make(**{p.name: values.pop(p.name) for p in own if p.name in values})
        return command(**values)

    del expanded.__wrapped__  # type: ignore[attr-defined]
    expanded.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    expanded.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return expanded


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _fields_as_parameters(group: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(field.name, _KEYWORD, default=field.default, annotation=hints[field.name])
        for field in dataclasses.fields(group)
    ]


def _options_as_parameters(request: type[Request]) -> list[inspect.Parameter]:
    """The options of a request as typer wants them."""
    hints = typing.get_type_hints(request)
    defaults = {field.name: field.default for field in dataclasses.fields(request)}
    return [_parameter(name, known, hints[name], defaults[name]) for name, known in options_of(request).items()]


def _parameter(name: str, known: Option, hint: Any, default: Any) -> inspect.Parameter:
    if known.read and Path not in typing.get_args(hint):  # a list, which the request reads from text
        hint = str | None if types.NoneType in typing.get_args(hint) else str
        default = ",".join(map(str, default)) if isinstance(default, Sequence) else default
    if known.argument:
        says = typer.Argument(metavar=name.upper(), help=known.help, show_default=False)
    else:
        shown = default is not dataclasses.MISSING
        says = typer.Option(flag(name), help=known.help, min=known.least, max=known.most, show_default=shown)
    default = inspect.Parameter.empty if default is dataclasses.MISSING else default
    return inspect.Parameter(name, _KEYWORD, default=default, annotation=Annotated[hint, says])


def command_line() -> str:
    """The command as it was typed, for meta.json."""
    return shlex.join(["headlab", *sys.argv[1:]])
