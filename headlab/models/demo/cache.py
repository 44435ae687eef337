"""The cache folder, and building something in it once: whole or not at all, however many processes ask for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from headlab.base.errors import CheckpointError


def cache_folder() -> Path:
    """The folder named in HEADLAB_CACHE, else the user's cache directory; it need not exist."""
    named = os.environ.get("HEADLAB_CACHE", "").strip()
    if named:
        return Path(named).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("headlab", appauthor=False))


def build_once(name: str, build: Callable[[Path], None]) -> Path:
    """The cache's folder `name`, filled by `build` if it is not there yet.

    `build` gets an empty folder beside the final one, which is renamed when it is done: a build that fails or is
    killed leaves nothing under the final name. Processes that want the same folder wait for the first one, and
    leftovers of killed builds are removed. Raises CheckpointError where the cache cannot be written.
    """
    target = cache_folder() / name
    if target.is_dir():
        return target
    from filelock import FileLock

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.parent / f"{name}.lock"):
            if not target.is_dir():
                _build(target, build)
    except OSError as error:
        raise CheckpointError(
            f"The cache folder {target.parent} cannot be used: {error.strerror or error}.",
            "Set HEADLAB_CACHE to a folder that can be written and has room.",
        ) from error
    return target


def _build(target: Path, build: Callable[[Path], None]) -> None:
    prefix = f".{target.name}.building-"
    for leftover in target.parent.glob(f"{prefix}*"):  # the lock is ours, so nobody is at work in them
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        build(folder)
        for path in folder.rglob("*"):
            if path.is_file():
                path.chmod(0o644)  # some writers make private files, mkdtemp a private folder: a cache may be shared
                _flush(path)
        folder.chmod(0o755)
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _flush(path: Path) -> None:
    """Onto the disk before the rename, so that a crash of the machine cannot leave a whole name on half a file."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
