"""The options that commands share, as dataclasses that a command takes whole."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headlab.base.errors import UsageError, unknown_name
from headlab.base.registry import Registry

MODEL_HELP = "Hub id, folder, .gguf file or demo:NAME (see `headlab list models`)."
Model = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP, show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of a table.")]


class Format(StrEnum):
    """File formats of tables."""

    parquet = "parquet"
    csv = "csv"


@dataclass
class ModelOptions:
    """How a checkpoint is opened."""

    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ...", rich_help_panel="Model")] = "cpu"
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16, float64, auto.", rich_help_panel="Model")] = (
        "float32"
    )
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a hub id.", rich_help_panel="Model")
    ] = None
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.", rich_help_panel="Model")
    ] = False


@dataclass
class DataOptions:
    """Which examples a command reads."""

    data: Annotated[
        Path | None, typer.Option(help="Task data: jsonl, csv, tsv or text. Without it: texts of the package.")
    ] = None
    text_column: Annotated[str | None, typer.Option(help="Column of the texts.")] = None
    label_column: Annotated[str | None, typer.Option(help="Column of the labels.")] = None
    train_data: Annotated[Path | None, typer.Option(help="File that a probe is fitted on.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Use at most N texts or examples.")] = None
    batch_size: Annotated[int, typer.Option(min=1, help="Examples in a batch.")] = 32
    max_length: Annotated[int | None, typer.Option(min=2, help="Tokens in a text; longer ones are split.")] = None


@dataclass
class TranslationOptions:
    """What the task translation reads, and how it decodes; no other task takes these."""

    source: Annotated[
        Path | None, typer.Option(help="Lines to translate (text, .gz, tsv, jsonl).", rich_help_panel="Translation")
    ] = None
    reference: Annotated[
        Path | None, typer.Option(help="Their translations, line by line.", rich_help_panel="Translation")
    ] = None
    testset: Annotated[
        str | None, typer.Option(help="Test set that sacrebleu downloads: wmt14.", rich_help_panel="Translation")
    ] = None
    pair: Annotated[str | None, typer.Option(help="Languages: en-de.", rich_help_panel="Translation")] = None
    metric: Annotated[
        str | None, typer.Option(help="bleu, chrf, ter, or nll (no decoding).", rich_help_panel="Translation")
    ] = None
    beams: Annotated[
        int | None, typer.Option(min=1, help="Width of beam search; 1 is greedy.", rich_help_panel="Translation")
    ] = None
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of a translation.", rich_help_panel="Translation")
    ] = None
    prefix: Annotated[
        str | None, typer.Option(help="Written before each source (T5).", rich_help_panel="Translation")
    ] = None
    source_language: Annotated[
        str | None, typer.Option(help="As a multilingual model writes it.", rich_help_panel="Translation")
    ] = None
    target_language: Annotated[
        str | None, typer.Option(help="As a multilingual model writes it.", rich_help_panel="Translation")
    ] = None
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="BLEU and chrF without case.", rich_help_panel="Translation")
    ] = False
    tokenize: Annotated[
        str | None, typer.Option(help="BLEU's tokenizer, such as zh.", rich_help_panel="Translation")
    ] = None

    def given(self) -> dict[str, Any]:
        """The options that were given, by name."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value not in (None, False)}


@dataclass
class RunOptions:
    """Where results go and what is said meanwhile."""

    seed: Annotated[
        int, typer.Option(min=0, max=(1 << 32) - 1, help="Seed of everything random.", rich_help_panel="Run")
    ] = 0
    format: Annotated[Format, typer.Option(help="Format of the tables.", rich_help_panel="Run")] = Format.parquet
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what an earlier run left in DIR.", rich_help_panel="Run")
    ] = False


@dataclass
class TalkOptions:
    """How much a command says."""

    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.", rich_help_panel="Run")] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks and library notices.", rich_help_panel="Run")
    ] = False


def expand(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn each parameter that is a dataclass of options into those options, and hand the command the dataclass."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters.extend(_fields_as_parameters(groups[name]))
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def expanded(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
        return command(**values)

    del expanded.__wrapped__  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def _fields_as_parameters(group: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(group)
    ]


def names(text: str | None) -> list[str]:
    """`A,B` as a list; empty for no text."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def numbers(text: str, option: str) -> list[int]:
    """`0,3-5` as [0, 3, 4, 5]; raises UsageError for anything else."""
    found: list[int] = []
    for part in names(text):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"{option} {text!r} is not a list of numbers.", "Write numbers and ranges: 0,3-5.")
        if int(last or first) < int(first):
            raise UsageError(f"{option} {text!r} holds the range {part}, which is empty.", f"Write {last}-{first}.")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def require(plugins: Registry, name: str) -> None:
    """Raise UsageError, with the closest name and the list, unless there is a plugin of that name; imports nothing."""
    if name.replace("-", "_") not in {known.replace("-", "_") for known in plugins.names()}:
        raise unknown_name(plugins.noun, name, plugins.names())
