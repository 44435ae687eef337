"""What functions that take a while call as they go on."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called as progress(done, total, what): steps done, steps in all (None: unknown), and what is being done."""

    def __call__(self, done: int, total: int | None = None, what: str = "") -> object: ...


class Steps:
    """Counts steps, never beyond `total`, and tells them to a progress function where there is one."""

    def __init__(self, progress: Progress | None, total: int, what: str) -> None:
        self.progress, self.total, self.what, self.done = progress, total, what, 0

    def __call__(self, n: int = 1, what: str | None = None) -> None:
        """`n` more steps are done; `what` says which, where it is not the same all the time."""
        self.done = min(self.done + n, self.total)
        if self.progress:
            self.progress(self.done, self.total, self.what if what is None else what)
