"""How experiments say how far they are."""

from __future__ import annotations

import sys
import time

from headlab.base.progress import Progress

BEGUN = time.perf_counter()


def say(text: str) -> None:
    """A line on stderr, with the seconds since the start."""
    print(f"{time.perf_counter() - BEGUN:6.0f} s  {text}", file=sys.stderr, flush=True)


def told(what: str, pause: float = 0.0) -> Progress:
    """Progress as a line at most every `pause` seconds, with the time that is left at this pace."""
    begun = last = time.perf_counter()

    def progress(done: int, total: int | None = None, text: str = "") -> None:
        nonlocal last
        now = time.perf_counter()
        if done and (now - last >= pause or done == total):
            last = now
            left = "" if total is None else f" of {total}, {(now - begun) / done * (total - done):.0f} s left"
            say(f"{what} {done}{left}: {text}")

    return progress
