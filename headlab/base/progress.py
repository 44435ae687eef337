"""What functions that take a while call as they go on."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called as progress(done, total, what): steps done, steps in all (None: unknown), and what is being done."""

    def __call__(self, done: int, total: int | None = None, what: str = "") -> object: ...
