"""The folder that a command writes into: a hopeless one is refused early, a refused run leaves nothing there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headlab.base.errors import DataError, HeadlabError, UsageError


@contextmanager
def results_in(folder: Path) -> Iterator[None]:
    """Check the folder, and leave nothing there of a run that is refused before its first table is written."""
    check_folder(folder)
    is_new = not folder.exists()
    is_empty = is_new or not any(folder.iterdir())
    try:
        yield
    except HeadlabError:
        left = list(folder.iterdir()) if folder.is_dir() else []
        if is_empty and all(path.name == "meta.json" for path in left):
            for path in left:
                path.unlink()
            if is_new and folder.is_dir():
                folder.rmdir()
        raise


def check_folder(folder: Path) -> None:
    """Refuse a hopeless output folder before a model is loaded for nothing; leaves nothing behind.

    Raises UsageError for a folder with foreign files, a file in the way, and a place that cannot be written.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UsageError(f"{existing} is a file, not a folder.", "Choose another --out.")
    try:  # asking for permissions is not enough: root has them in places that cannot be written
        tempfile.TemporaryDirectory(prefix=".headlab-", dir=existing).cleanup()
    except OSError as error:
        raise UsageError(f"{existing} cannot be written: {error.strerror}.", "Choose another --out.") from error
    if existing == folder.absolute() and any(not path.name.startswith(".") for path in folder.iterdir()):
        from headlab.runs.meta import read_meta

        try:
            read_meta(folder)
        except DataError as error:
            cause = f"{folder} holds files that are no run of headlab."
            raise UsageError(cause, "Choose an empty or a new folder.") from error


def written_files(folder: Path) -> list[Path]:
    """The files of a run that a person would open: tables, maps and meta, then figures."""
    found = [*folder.glob("*.parquet"), *folder.glob("*.csv"), *folder.glob("*.json"), *folder.glob("*.safetensors")]
    return sorted(found) + sorted((folder / "figures").glob("*.png"))
