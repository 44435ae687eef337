"""The options that every task takes, checked before a model is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from headlab.base.errors import UsageError, unknown_name
from headlab.tasks.data.records import Source


@dataclass(frozen=True)
class Options:
    """What a user may set: the data, how much of it, and how it is split and batched."""

    data: Source | None = None  # a file, several, or a folder; None: the texts that come with the package
    limit: int | None = None  # examples, spread over the groups in proportion
    batch_size: int = 32  # examples
    max_length: int | None = None  # tokens, special ones included; longer texts are split
    seed: int = 0
    split: str = "50:50"  # select:report, in per cent (adding up to 100) or in examples
    text_column: str | None = None
    label_column: str | None = None
    train_data: Source | None = None  # where a probe is fitted; None: on the select split
    pad_side: str = "right"

    @classmethod
    def of(cls, task: str, given: Mapping[str, Any], unused: tuple[str, ...]) -> Options:
        """Options of one task from keyword arguments; UsageError for unknown ones and for values out of range."""
        known = [field.name for field in fields(cls) if field.name not in unused]
        for name, value in given.items():
            if name in unused and value is not None:
                raise UsageError(f"The task {task!r} does not use the option {name!r}.", "Leave it out.")
            if name not in known and name not in unused:
                raise unknown_name(f"option of the task {task!r}:", name, known)
        options = cls(**given)
        for field in fields(cls):
            value = getattr(options, field.name)
            if field.type in ("str", "str | None") and not isinstance(value, (str, type(None))):
                raise UsageError(f"{field.name} = {value!r} is no text.", "Give text.")
        options._require_range("seed", options.seed, 0)
        options._require_range("limit", options.limit, 1)
        options._require_range("batch_size", options.batch_size, 1)
        options._require_range("max_length", options.max_length, 2)
        if options.pad_side not in ("left", "right"):
            raise unknown_name("side", options.pad_side, ("left", "right"))
        return options

    @staticmethod
    def _require_range(name: str, value: object, least: int) -> None:
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise UsageError(f"{name} = {value!r} is out of range.", f"Give a whole number of at least {least}.")
