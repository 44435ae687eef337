"""Text files, plain or gzip, as text or as lines: what cannot be read is said in one way."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from headlab.base.errors import DataError


def read_text(path: str | Path, *, may_be_empty: bool = False) -> str:
    """A whole UTF-8 file (.gz too), with a byte order mark left out and the ends of lines as they are.

    Raises DataError for a file that is missing, not UTF-8 (with the line), or blank where that may not be.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        cause = f"{path} cannot be read: it is not a whole gzip file."
        raise DataError(cause, "Check the file; compress it again, or give the plain text.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.", "Check the path and the file.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        cause = f"{path} is not UTF-8: line {line} holds the byte 0x{error.object[error.start]:02x}."
        raise DataError(cause, "Convert it to UTF-8, as with: iconv -t UTF-8.") from error
    if not text.strip() and not may_be_empty:
        raise DataError(f"{path} is empty.", "Give a file with text in it.")
    return text


def read_texts(path: str | Path) -> list[str]:
    """The non-empty lines of a UTF-8 text file (.gz too), stripped; DataError where there is none to read."""
    if not Path(path).exists():
        raise DataError(f"There is no file {path}.", "Give the path of a UTF-8 text file.")
    return [line.strip() for line in read_text(path).split("\n") if line.strip()]
