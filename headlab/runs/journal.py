"""A file of finished pieces of a long computation, so that a killed one loses the piece in progress at most."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from headlab.base.errors import UsageError
from headlab.base.json_text import to_json

FOLDER = "rows"  # where clear_run finds it


class Journal(MutableMapping[str, list]):
    """A mapping from names to lists of numbers whose every new item is on disk before the next one is computed.

    One JSON line an item; floats are read back exactly. A last line that was cut short is left out, and whatever
    belongs to another signature (model, data, ablation ...) lies in another file.
    """

    def __init__(self, run: str | Path, name: str, signature: Mapping[str, Any]) -> None:
        text = json.dumps([name, json.loads(to_json(signature))], sort_keys=True)
        safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)
        self.path = Path(run) / FOLDER / f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"
        self._items: dict[str, list] = {}
        self._whole = 0  # bytes up to the end of the last whole line
        with contextlib.suppress(FileNotFoundError):
            self._read(self.path.read_bytes())

    def _read(self, content: bytes) -> None:
        for line in content.splitlines(keepends=True):
            try:
                item = json.loads(line)
            except ValueError:
                return
            sound = isinstance(item, list) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], list)
            if not sound or not line.endswith(b"\n"):
                return
            key, value = item
            self._items[key] = value
            self._whole += len(line)

    def __getitem__(self, key: str) -> list:
        return self._items[key]

    def __setitem__(self, key: str, value: Any) -> None:
        """Keep a list (or array) of numbers under a name, once and for all; UsageError where it cannot be written."""
        found = value.tolist() if hasattr(value, "tolist") else list(value)
        line = json.dumps([key, found]).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "r+b" if self.path.exists() else "w+b") as file:
                file.truncate(self._whole)  # a line that was cut short must not spoil the next one
                file.seek(self._whole)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}.", "Choose another folder.") from error
        self._whole += len(line)
        self._items[key] = found

    def __delitem__(self, key: str) -> None:
        raise TypeError("What is in a journal stays there.")

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
