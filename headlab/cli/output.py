"""What a command says: results on stdout as text or JSON, progress on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from rich.progress import Progress as Bar


class Progress:
    """Progress on stderr: a bar on a terminal, a line for each stage, nothing where `quiet`; warnings always.

    The functions that take a while call it as progress(done, total, what). Where there is no bar, the line of a stage
    begins with the stage and ends with the seconds that it took, so that a command says at once what it does.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = not quiet
        self._bar: Bar | None = None
        self._task: Any = None
        self._what = ""
        self._since = 0.0

    def __enter__(self) -> Progress:
        if self._shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_stage()
        if self._bar:
            self._bar.stop()

    def __call__(self, done: int, total: int | None = None, what: str = "") -> None:
        if self._bar and self._task is not None:
            description = f"{self._what}: {what}" if what else self._what
            self._bar.update(self._task, completed=done, total=total, description=description)

    def stage(self, what: str) -> None:
        """Begin a stage, which ends the one before."""
        self._end_stage()
        self._what, self._since = what, time.monotonic()
        if self._bar:
            self._task = self._bar.add_task(what, total=None)
        elif self._shown:
            print(f"{what}: ", end="", file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Say at once, even where `quiet`, what makes a result other than was asked for."""
        in_a_line = self._shown and self._what and not self._bar
        before, after = ("\n", f"{self._what}: ") if in_a_line else ("", "")
        print(f"{before}Warning: {text}\n{after}", end="", file=sys.stderr, flush=True)

    def _end_stage(self) -> None:
        if not self._what:
            return
        seconds = f"{time.monotonic() - self._since:.1f} s"
        if self._bar:
            self._bar.remove_task(self._task)
            print(f"{self._what}: {seconds}", file=sys.stderr, flush=True)
        elif self._shown:
            print(seconds, file=sys.stderr, flush=True)
        self._what = ""


def table_text(table: pd.DataFrame, columns: Sequence[str] | None = None, n: int | None = None) -> str:
    """Rows of a table as aligned text; with `n`, the first n and how many more there are."""
    shown = table if columns is None else table[[c for c in columns if c in table.columns]]
    text = (shown if n is None else shown.head(n)).to_string(index=False, float_format=_short, na_rep="-")
    left = 0 if n is None else len(shown) - n
    return f"{text}\n... and {left} more" if left > 0 else text


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) >= 1000 or 0 < abs(value) < 0.001 else f"{value:.3f}"


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as plain dictionaries; missing values and infinities become None, which JSON can carry."""
    import json

    flat = table.reset_index() if any(level is not None for level in table.index.names) else table
    return json.loads(flat.to_json(orient="records", double_precision=15))


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    from headlab.base.json_text import to_json

    print(to_json(value))


def print_paths(paths: Iterable[Path]) -> None:
    """Print the files that were written, one a line, on stdout."""
    for path in paths:
        print(path)
