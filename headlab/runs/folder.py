"""A run folder: whether a command goes on in it, and which files are its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from headlab.base.errors import DataError, UsageError
from headlab.base.json_text import to_json
from headlab.runs import evaluations, journal, maps, tables
from headlab.runs.files import FIGURES, META, REPORT, TRANSLATIONS, unwritable
from headlab.runs.meta import read_meta, write_meta

# Everything that headlab writes into a run folder, as patterns; nothing else is ever removed from one.
OWN_FILES = (
    META,
    REPORT,
    *(f"{name}.{format}" for name in tables.SCHEMA for format in tables.FORMATS),
    *(f"{name}.csv" for name in tables.PLAIN),
    *maps.FILES,
    f"{evaluations.FOLDER}/*",
    f"{journal.FOLDER}/*",
    f"{TRANSLATIONS}/*.jsonl",
    *(f"{FIGURES}/*.{format}" for format in ("png", "svg", "pdf")),
)


def open_run(
    folder: str | Path, signature: Mapping[str, Any], overwrite: bool = False, *, command: str = ""
) -> Literal["new", "resume"]:
    """Make a folder ready for a run: "new" where it is empty, "resume" where it holds a run of this signature.

    With `overwrite`, the files of an earlier run are removed first (never files that headlab did not write), and
    the answer is "new". A new run's meta.json is written at once, marked as not finished, so that a killed run is
    known again. Raises UsageError for a folder with another signature (naming what differs), for a folder with
    foreign files and for one that cannot be written.
    """
    folder = Path(folder)
    _check_writable(folder)
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        found = _found_signature(folder)
        differing = differences(signature, found)
        if not overwrite and not differing:
            return "resume"
        if not overwrite:
            raise UsageError(
                f"{folder} holds another run; it differs in {'; '.join(differing)}.",
                "Choose another folder, or pass --overwrite.",
            )
        clear_run(folder)
    write_meta(folder, signature, command=command, finished=False)
    return "new"


def _found_signature(folder: Path) -> dict[str, Any]:
    try:
        return read_meta(folder)["signature"]
    except DataError as error:
        raise UsageError(
            f"{folder} holds files that are no run of headlab: {error.cause}", "Choose an empty or a new folder."
        ) from error


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".headlab-{uuid.uuid4().hex[:8]}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise unwritable(folder, error) from error


def clear_run(folder: str | Path) -> None:
    """Remove the files of a run, by name, and leave every other file alone."""
    for path in (path for pattern in OWN_FILES for path in Path(folder).glob(pattern)):
        if path.is_file():
            path.unlink()


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Which keys of two signatures differ, with both values: `task.n (400 now, 200 there)`."""
    left, right = _flatten(json.loads(to_json(ours))), _flatten(json.loads(to_json(theirs)))
    keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    return [f"{key} ({_short(left.get(key))} now, {_short(right.get(key))} there)" for key in keys]


def _flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, item in value.items():
        if isinstance(item, dict) and item:
            flat |= _flatten(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(item, sort_keys=True)
    return flat


def _short(value: str | None, limit: int = 40) -> str:
    text = "nothing" if value is None else value.strip('"')
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def save(
    folder: str | Path,
    *,
    heads: pd.DataFrame | None = None,
    sweep: pd.DataFrame | None = None,
    examples: pd.DataFrame | None = None,
    meta: Mapping[str, Any] | None = None,
    command: str = "",
    notes: Mapping[str, Any] | None = None,
    format: str = "parquet",
) -> list[Path]:
    """Write the tables of a run and its signature (`meta`) into a folder, each file atomically; returns the paths.

    Without `meta`, the signature that is there stays. Raises UsageError where the folder cannot be written.
    """
    given = {"heads": heads, "sweep": sweep, "examples": examples}
    paths = [tables.save_table(table, folder, name, format) for name, table in given.items() if table is not None]
    if not paths and meta is None:
        raise UsageError("There is nothing to save.", "Pass heads=, sweep=, examples= or meta=.")
    path = Path(folder) / META
    if meta is not None:
        paths.append(write_meta(folder, meta, command=command, notes=notes))
    elif not path.exists():
        paths.append(write_meta(folder, {}, command=command, notes=notes))
    return paths
