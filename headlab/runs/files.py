"""Files of a run folder: what those are called that other parts write, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headlab.base.errors import UsageError

META = "meta.json"
REPORT = "report.html"
FIGURES = "figures"
TRANSLATIONS = "translations"


def write_atomically(path: str | Path, content: bytes | str | Callable[[Path], Any]) -> Path:
    """Write a file so that it is there whole or not at all: to a neighbour first, then renamed.

    `content` is the bytes, the text (UTF-8), or a function that writes to the path it is given (which keeps the
    suffix of `path`). Parent folders are made. Raises UsageError where the place cannot be written; whatever else
    the function raises passes through, and the old file stays.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}-{os.getpid()}-{uuid.uuid4().hex[:8]}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())  # a rename that outlives a power cut must not point to an empty file
        os.replace(temporary, path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def unwritable(path: Path, error: OSError) -> UsageError:
    """The error for a place that cannot be written."""
    return UsageError(f"{path} cannot be written: {error.strerror or error}.", "Choose another folder.")
