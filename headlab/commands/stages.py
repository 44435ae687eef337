"""What a command tells while it runs: the stage it is in, how far it is, and warnings."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from headlab.base.progress import Progress


class Stages:
    """The stages and warnings of a command, handed on to `progress`.

    `progress` is None, a function progress(done, total, what), or one that has stage(what) and warn(text), too, as
    the command line's has. Warnings are also kept, in `warnings`.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._progress: Any = progress
        self.warnings: list[str] = []

    def __call__(self, done: int, total: int | None = None, what: str = "") -> None:
        if self._progress:
            self._progress(done, total, what)

    def begin(self, what: str) -> None:
        """Begin a stage, which ends the one before."""
        if hasattr(self._progress, "stage"):
            self._progress.stage(what)
        else:
            self(0, None, what)

    def warn(self, text: str) -> None:
        """Tell at once what makes a result other than was asked for."""
        self.warnings.append(text)
        if hasattr(self._progress, "warn"):
            self._progress.warn(text)

    def load_libraries(self) -> None:
        """Import torch and transformers as a stage of its own, since it is the first thing that takes seconds."""
        heavy = ("torch", "transformers.modeling_utils")
        if not all(name in sys.modules for name in heavy):
            self.begin("loading torch and transformers")
            for name in heavy:
                importlib.import_module(name)
