"""The options that requests share: each is a field with its default, and carries what the command line says of it."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from headlab.base.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from headlab.models import Checkpoint
    from headlab.pruning.training import Finetuning
    from headlab.tasks import Task

Read = Callable[[str, str], Any]  # (text, name of the option) -> value
Format = Literal["parquet", "csv"]
TRAIN = ("none", "gates", "all")
STEPS = {"gates": 200, "all": 50}


class Option(NamedTuple):
    """What the command line says and checks of a field: help, bounds, and how its text is read."""

    help: str
    read: Read | None = None
    least: int | None = None
    most: int | None = None
    argument: bool = False


def option(default: Any, help: str, read: Read | None = None, **limits: Any) -> Any:
    """A field that is an option `--name` of the command line, with the `limits` that Option knows.

    `read` turns text into the field's value. With the default dataclasses.MISSING it has to be given.
    """
    return field(default=default, metadata={"option": Option(help, read, **limits)})


def options_of(request: Any) -> dict[str, Option]:
    """Name -> Option, for every field of a request (or its class) that the command line knows."""
    return {f.name: f.metadata["option"] for f in dataclasses.fields(request) if "option" in f.metadata}


def flag(name: str) -> str:
    """`--keep-at-least` for keep_at_least."""
    return f"--{name.replace('_', '-')}"


def read_path(text: str, option: str) -> Path:
    """A path."""
    return Path(text)


def read_names(text: str, option: str = "") -> tuple[str, ...]:
    """`A,B` as names."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_numbers(text: str, option: str) -> tuple[int, ...]:
    """`0,3-5` as (0, 3, 4, 5); raises UsageError for anything else."""
    found: list[int] = []
    for part in read_names(text):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"{option} {text!r} is not a list of numbers.", "Write numbers and ranges: 0,3-5.")
        if int(last or first) < int(first):
            raise UsageError(f"{option} {text!r} holds the range {part}, which is empty.", f"Write {last}-{first}.")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


def read_penalties(text: str, option: str) -> tuple[float, ...]:
    """`0.002,0.01` as floats; raises UsageError for anything else, infinity too."""
    try:
        found = [float(part) for part in read_names(text)]
    except ValueError:
        found = []
    if not found or not all(math.isfinite(number) for number in found):
        raise UsageError(f"{option} {text!r} is not a list of numbers.", "Write numbers: 0.002,0.01.")
    return tuple(found)


def read_sizes(text: str, option: str) -> tuple[int, ...]:
    """`12,24` as whole numbers from 1; raises UsageError for anything else."""
    parts = read_names(text)
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"{option} {text!r} is not a list of numbers of heads.", "Write whole numbers from 1: 12,24.")
    return tuple(int(part) for part in parts)


def _types_of(request: type) -> dict[str, tuple[type, ...]]:
    """The classes that a value of each field may be of: of lists Sequence, of choices str."""
    found = {}
    for name, hint in get_type_hints(request).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        classes = (str if get_origin(part) is Literal else get_origin(part) or part for part in parts)
        found[name] = tuple(kind for kind in classes if isinstance(kind, type))
    return found


def _is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of one of the classes; truth is no number, and text no list."""
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) and not (isinstance(value, str) and str not in kinds)


def _require_range(name: str, value: Any, least: int | None, most: int | None) -> None:
    if value is None or least is None:
        return
    if value < least or (most is not None and value > most):
        allowed = f"from {least}" + ("" if most is None else f" to {most}")
        raise UsageError(f"{name} {value} is out of range.", f"Give a number {allowed}.")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a command is asked for. Options that are lists or paths may be given as the command line's text, too.

    A value of another type, or out of range, is refused when the request is made; names that do not exist and options
    that do not go together are refused by `check`, with which every command begins. Messages name options as the
    command line does.
    """

    NAME: ClassVar[str] = ""

    def __post_init__(self) -> None:
        types = _types_of(type(self))
        for name, known in options_of(self).items():
            value = getattr(self, name)
            if known.read and isinstance(value, str):
                value = known.read(value, flag(name))
            elif isinstance(value, list):
                value = tuple(value)
            if not _is_of(value, types[name]):
                allowed = " or ".join(kind.__name__ for kind in types[name] if kind is not type(None))
                cause = f"{flag(name)} {value!r} is of the type {type(value).__name__}, not {allowed}."
                raise UsageError(cause, f"Give {allowed}.")
            _require_range(flag(name), value, known.least, known.most)
            object.__setattr__(self, name, value)

    def check(self) -> None:
        """Raise UsageError for what cannot be asked for; opens no model and no file."""

    def command_line(self, out: str | Path | None = None) -> str:
        """The command that asks for the same on the command line: `headlab dump demo:minilm --maps 2 --out DIR`."""
        words = ["headlab", *self.NAME.split()]
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        for name, known in options_of(self).items():
            value = getattr(self, name)
            if value is None or value == defaults[name]:
                continue
            several = not isinstance(value, str) and isinstance(value, Sequence)
            text = ",".join(map(str, value)) if several else str(value)
            words += [text] if known.argument else [flag(name)] if value is True else [flag(name), text]
        return shlex.join(words + ([] if out is None else ["--out", str(out)]))


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Request):
    """Which checkpoint, and how it is opened."""

    model: str = option(
        dataclasses.MISSING, "Hub id, folder, .gguf file or demo:NAME (see `headlab list models`).", argument=True
    )
    device: str = option("cpu", "cpu, cuda, cuda:1 ...")
    dtype: str = option("float32", "float32, bfloat16, float16, float64, auto.")
    revision: str | None = option(None, "Branch, tag or commit of a hub id.")
    trust_remote_code: bool = option(False, "Run code that comes with the model.")

    def open_checkpoint(self) -> Checkpoint:
        """Open the model; raises CheckpointError where it cannot be."""
        from headlab.models import open_model

        quiet_transformers()
        return open_model(self.model, purpose="auto", **self.opening())

    def opening(self) -> dict[str, Any]:
        """The keyword arguments of open_model that were asked for."""
        arguments: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        arguments |= {} if self.revision is None else {"revision": self.revision}
        return arguments | ({"trust_remote_code": True} if self.trust_remote_code else {})


@dataclass(frozen=True, kw_only=True)
class DataOptions(Request):
    """Which examples a command reads."""

    data: Path | None = option(None, "Task data: jsonl, csv, tsv or text. Without it: texts of the package.", read_path)
    text_column: str | None = option(None, "Column of the texts.")
    label_column: str | None = option(None, "Column of the labels.")
    train_data: Path | None = option(None, "File that a probe is fitted on.", read_path)
    limit: int | None = option(None, "Use at most N texts or examples.", least=1)
    batch_size: int = option(32, "Examples in a batch.", least=1)
    max_length: int | None = option(None, "Tokens in a text; longer ones are split.", least=2)


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(Request):
    """What the task translation reads, and how it decodes; no other task takes these."""

    source: Path | None = option(None, "Lines to translate (text, .gz, tsv, jsonl).", read_path)
    reference: Path | None = option(None, "Their translations, line by line.", read_path)
    testset: str | None = option(None, "Test set that sacrebleu downloads: wmt14.")
    pair: str | None = option(None, "Languages: en-de.")
    metric: str | None = option(None, "bleu, chrf, ter, or nll (no decoding).")
    beams: int | None = option(None, "Width of beam search; 1 is greedy.", least=1)
    max_new_tokens: int | None = option(None, "Most tokens of a translation.", least=1)
    prefix: str | None = option(None, "Written before each source (T5).")
    source_language: str | None = option(None, "As a multilingual model writes it.")
    target_language: str | None = option(None, "As a multilingual model writes it.")
    lowercase: bool = option(False, "BLEU and chrF without case.")
    tokenize: str | None = option(None, "BLEU's tokenizer, such as zh.")

    def translation(self) -> dict[str, Any]:
        """The options of translation that were given, by name."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(TranslationOptions)}
        return {name: value for name, value in values.items() if value not in (None, False)}


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Request):
    """What a sweep trains, and how long: learned gates at several prices, or the weights after every cut."""

    train: str = option(
        "none", "none; gates: learn which heads stay, weights frozen; all: fine-tune weights after every cut too."
    )
    steps: int | None = option(None, "Steps of a training (gates 200, all 50).", least=1)
    penalties: Sequence[float] | None = option(
        None, "A,B: prices of an open gate, in units of the loss.", read_penalties
    )
    keep: Sequence[int] | None = option(None, "A,B: learn subsets of exactly so many heads.", read_sizes)

    def check(self) -> None:
        """Raise UsageError for values that cannot be."""
        super().check()
        if self.train not in TRAIN:
            raise unknown_name("choice of what to train", self.train, TRAIN)
        given = [name for name in ("steps", "penalties", "keep") if getattr(self, name) is not None]
        if self.train == "none" and given:
            raise UsageError(f"--{given[0]} has no effect without training.", "Add --train gates or --train all.")

    def levels(self) -> dict[str, Sequence[float] | None]:
        """The ladders of gates to climb and their levels, None for the default ones; none but where asked for."""
        asked = {"hard_concrete": self.penalties, "exact_k": self.keep}
        found: dict[str, Sequence[float] | None] = {
            name: [float(level) for level in levels] for name, levels in asked.items() if levels is not None
        }
        return found or ({"hard_concrete": None} if self.train == "gates" else {})

    @property
    def n_steps(self) -> int:
        """Steps of one training."""
        return STEPS.get(self.train, 0) if self.steps is None else self.steps

    def finetuning(self, seed: int) -> Finetuning | None:
        """What follows every cut."""
        from headlab.pruning.training import Finetuning

        return Finetuning(self.n_steps, seed=seed) if self.train == "all" else None


@dataclass(frozen=True, kw_only=True)
class RunOptions(Request):
    """What a run folder is made with."""

    seed: int = option(0, "Seed of everything random.", least=0, most=(1 << 32) - 1)
    format: Format = option("parquet", "Format of the tables.")
    overwrite: bool = option(False, "Replace what an earlier run left in DIR.")
    command: str = ""  # as it was typed, for meta.json; without it, the command line that asks for the same

    def check(self) -> None:
        """Raise UsageError for numbers out of range and an unknown format."""
        super().check()
        if self.format not in get_args(Format):
            raise unknown_name("format", self.format, get_args(Format))


@dataclass(frozen=True, kw_only=True)
class RunRequest(RunOptions, TranslationOptions, DataOptions, ModelOptions):
    """A command that shows a model texts or the examples of a task, and leaves a run folder."""

    task: str | None = None

    def open_task(self, **settings: Any) -> Task:
        """Open the task with its model; raises DataError for unusable data, CheckpointError for the model."""
        from headlab.tasks import task

        quiet_transformers()
        columns = ("text_column", "label_column", "train_data")
        given = {name: getattr(self, name) for name in columns if getattr(self, name) is not None}
        common = {name: getattr(self, name) for name in ("data", "limit", "batch_size", "max_length", "seed")}
        return task(
            str(self.task), model=self.model, **common, **given, **self.opening(), **self.translation(), **settings
        )


def quiet_transformers() -> None:
    """Turn off the notices and bars of transformers where the environment wants it quiet, as the command line does."""
    if os.environ.get("TRANSFORMERS_VERBOSITY") == "error":
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()


def check_plugin(plugins: Any, name: str) -> None:
    """Raise UsageError, with the closest name and the list, unless there is a plugin of that name; imports nothing."""
    if name.replace("-", "_") not in {known.replace("-", "_") for known in plugins.names()}:
        raise unknown_name(plugins.noun, name, plugins.names())
