"""The errors that headlab raises on purpose: each says what was wrong and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HeadlabError(Exception):
    """A failed run: one line of cause, one of remedy.

    `exit_code` is what the command line exits with (1 failed, 2 wrong usage, 3 a proof failed).
    """

    exit_code = 1

    def __init__(self, cause: str, remedy: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}".strip()


class UsageError(HeadlabError):
    """The request itself cannot be carried out: an unknown name, a head that does not exist, a budget out of range."""

    exit_code = 2


class PluginError(UsageError):
    """A label, score, task or metric of somebody's own cannot be used: it does not import, or its name is taken."""


class DataError(HeadlabError):
    """A file is missing, empty, in another encoding, or lacks a column."""


class CheckpointError(HeadlabError):
    """A model cannot be opened: not found, not installed, not of the stated format."""


class UnsupportedModelError(HeadlabError):
    """headlab cannot prove that it sees and gates every attention head of this model, so it refuses it."""


class ProofError(HeadlabError):
    """A run finished, but something that must be equal was not."""

    exit_code = 3


def unknown_name(noun: str, name: str, known: Iterable[str]) -> UsageError:
    """Error for a name that is not in a list: the closest known name, then all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    suggestion = f"Did you mean {close[0]!r}? " if close else ""
    return UsageError(f"Unknown {noun} {name!r}.", f"{suggestion}Known: {', '.join(names)}.")
