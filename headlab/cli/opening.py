"""Opening what a command works on: the checkpoint or the task, and the folder for its results."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headlab.base.errors import DataError, HeadlabError, UsageError
from headlab.cli.options import DataOptions, ModelOptions

if TYPE_CHECKING:
    from headlab.models import Checkpoint
    from headlab.tasks import Task


def open_checkpoint(name: str, options: ModelOptions, purpose: str = "auto") -> Checkpoint:
    """Open a model; raises CheckpointError where it cannot be."""
    from headlab.models import open_model

    quiet_transformers()
    return open_model(name, purpose=purpose, **model_arguments(options))


def open_task(name: str, model: str, options: ModelOptions, data: DataOptions, **more: Any) -> Task:
    """Open a task with its model; raises UsageError for an unknown task and DataError for unusable data."""
    from headlab.tasks import task

    quiet_transformers()
    columns = {"text_column": data.text_column, "label_column": data.label_column, "train_data": data.train_data}
    given = {key: value for key, value in columns.items() if value is not None}
    return task(
        name,
        model=model,
        data=data.data,
        limit=data.limit,
        batch_size=data.batch_size,
        max_length=data.max_length,
        **given,
        **model_arguments(options),
        **more,
    )


def quiet_transformers() -> None:
    """Turn off the notices and bars of transformers where the command line wants quiet (see headlab.cli)."""
    if os.environ.get("TRANSFORMERS_VERBOSITY") == "error":
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()


def model_arguments(options: ModelOptions) -> dict[str, Any]:
    """The model options as keyword arguments of open_model."""
    arguments: dict[str, Any] = {"device": options.device, "dtype": options.dtype}
    if options.revision is not None:
        arguments["revision"] = options.revision
    if options.trust_remote_code:
        arguments["trust_remote_code"] = True
    return arguments


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
    from headlab.runs.tables import read_meta

    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UsageError(f"{existing} is a file, not a folder.", "Choose another --out.")
    try:  # asking for permissions is not enough: root has them in places that cannot be written
        tempfile.TemporaryDirectory(prefix=".headlab-", dir=existing).cleanup()
    except OSError as error:
        raise UsageError(f"{existing} cannot be written: {error.strerror}.", "Choose another --out.") from error
    if existing == folder.absolute() and any(not path.name.startswith(".") for path in folder.iterdir()):
        try:
            read_meta(folder)
        except DataError as error:
            cause = f"{folder} holds files that are no run of headlab."
            raise UsageError(cause, "Choose an empty or a new folder.") from error


def command_line() -> str:
    """The command as it was typed, for meta.json."""
    return shlex.join(["headlab", *sys.argv[1:]])
