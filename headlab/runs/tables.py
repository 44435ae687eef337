"""The tables of a run and the folder they lie in: parquet or csv beside a meta.json that carries the signature."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from headlab.base import statistics
from headlab.base.errors import DataError, UsageError, unknown_name

SCHEMA_VERSION = 1
HEAD_INDEX = ("kind", "layer", "head")
STATISTICS = tuple(statistics.STATISTICS)
SWEEP_COLUMNS = (
    "strategy",
    "ablation",
    "seed",
    "kinds",
    "budget",
    "n_removed",
    "n_heads",
    "metric",
    "value",
    "baseline",
    "drop",
    "ci_low",
    "ci_high",
    "n_examples",
    "split",
    "seconds",
)
# Columns that a table cannot do without; any further column is kept as it is.
SCHEMA: dict[str, tuple[str, ...]] = {
    "heads": HEAD_INDEX,
    "sweep": SWEEP_COLUMNS,
    "examples": ("run", "example"),
    "heads_over_training": (*HEAD_INDEX, "step"),
    "maps_words": (*HEAD_INDEX, "text", "query", "query_word", "key", "key_word", "weight"),
}
FORMATS = ("parquet", "csv")
_TEXT_COLUMNS = ("kind", "labels", "strategy", "ablation", "kinds", "budget", "metric", "split", "run")
_WHOLE_COLUMNS = ("layer", "head", "kv_group", "n_queries", "seed", "n_removed", "n_heads", "n_examples", "example")
_NAME_A_RUN = "Name a folder that headlab dump or headlab sweep wrote."
_OWN_FILES = (
    "maps.safetensors",
    "maps.json",
    "gates.csv",
    "single.csv",
    "one_head_per_layer.csv",
    "areas.csv",
    "stability.csv",
    "correlation.csv",
    "report.html",
    "meta.json",
)
_OWN_PATTERNS = ("rows/*", "translations/*.jsonl", "figures/*.png", "figures/*.svg", "figures/*.pdf")


def label_columns(heads: pd.DataFrame) -> list[str]:
    """The label columns of a head table: those with a `<label>_score` beside them."""
    columns = [str(c) for c in heads.columns]
    return [c for c in columns if f"{c}_score" in columns]


def score_columns(heads: pd.DataFrame) -> list[str]:
    """The importance columns of a head table: `score_<name>`."""
    return [str(c) for c in heads.columns if str(c).startswith("score_")]


def head_names(index: Iterable[tuple[str, int, int]], *, single_stack: bool | None = None) -> list[str]:
    """Names of heads: `L3H5` where all are of one kind (or `single_stack` says so), else `E3H5`, `D3H5`, `X3H5`.

    Cross-attention is never all that a model has, so that a table of it alone has names with X.
    """
    heads = list(index)
    if single_stack is None:
        kinds = {kind for kind, _, _ in heads}
        single_stack = len(kinds) <= 1 and kinds != {"cross"}
    letters = {"encoder": "E", "decoder": "D", "cross": "X"}
    return [f"{'L' if single_stack else letters.get(kind, kind)}{layer}H{head}" for kind, layer, head in heads]


def save_table(table: pd.DataFrame, folder: str | Path, name: str, format: str = "parquet") -> Path:
    """Write one table of a run as `<name>.parquet` or `<name>.csv`, atomically, and return its path.

    Named index levels become columns. An older copy in the other format is removed, so that one truth is left.
    Raises UsageError for an unknown name or format and for a folder that cannot be written.
    """
    if name not in SCHEMA:
        raise unknown_name("table", name, SCHEMA)
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    flat = table.reset_index() if any(level is not None for level in table.index.names) else table.copy(deep=False)
    flat.attrs = {}  # notes of the computation are no part of the table, and parquet would have to encode them
    _check_columns(flat, name, f"The table {name!r}")
    path = Path(folder) / f"{name}.{format}"
    if format == "parquet":
        write_atomically(path, lambda temporary: flat.to_parquet(temporary, index=False))
    else:
        write_atomically(path, lambda temporary: flat.to_csv(temporary, index=False))
    for other in FORMATS:
        if other != format:
            path.with_suffix(f".{other}").unlink(missing_ok=True)
    return path


def load_table(folder: str | Path, name: str) -> pd.DataFrame:
    """Read one table of a run, whichever format it is in; `heads` comes indexed by (kind, layer, head).

    Raises DataError where there is no such table, where it cannot be read and where columns are missing.
    """
    path = table_path(folder, name)
    if path is None:
        raise DataError(f"{folder} holds no {name} table.", f"Expected {name}.parquet or {name}.csv there.")
    try:
        table = pd.read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    except (OSError, ValueError) as error:  # pyarrow's and pandas' reading errors are ValueErrors
        cause = str(error).strip().split("\n")[0]
        raise DataError(f"{path} cannot be read: {cause}", "Write the run again, or take the file away.") from error
    table = _with_index(table)
    older = _older_schema(folder)
    _check_columns(table, name, f"{path}{older}")
    return table.set_index(list(HEAD_INDEX)) if name == "heads" else table


def _with_index(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose index was stored as an index, as pandas does by itself, with plain columns."""
    named = [level for level in table.index.names if level is not None and level not in table.columns]
    return table.reset_index() if named else table


def _older_schema(folder: str | Path) -> str:
    """Words for an error about a table that an older headlab, or something else, wrote; empty for one of today."""
    try:
        schema = read_meta(folder).get("schema", 0)
    except DataError:
        return ""
    return f" (of schema {schema}; this headlab writes {SCHEMA_VERSION})" if schema != SCHEMA_VERSION else ""


def table_path(folder: str | Path, name: str) -> Path | None:
    """Where a table of a run lies, or None; raises UsageError for a name that is no table."""
    if name not in SCHEMA:
        raise unknown_name("table", name, SCHEMA)
    candidates = [Path(folder) / f"{name}.{format}" for format in FORMATS]
    return next((path for path in candidates if path.is_file()), None)


def _check_columns(table: pd.DataFrame, name: str, what: str) -> None:
    missing = [column for column in SCHEMA[name] if column not in table.columns]
    if missing:
        there = ", ".join(str(c) for c in table.columns[:30])
        raise DataError(
            f"{what} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}.", f"It has {there}."
        )


def _read_csv(path: Path) -> pd.DataFrame:
    """A csv with the types that csv cannot carry: text stays text, labels are nullable booleans, floats are exact."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""])
    labels = label_columns(table)
    typed = {column: _typed(table[column], str(column), column in labels) for column in table.columns}
    return pd.DataFrame(typed)


def _typed(values: pd.Series, column: str, is_label: bool) -> pd.Series:
    there = values.dropna()
    if is_label or (len(there) and set(there.unique()) <= {"True", "False"}):
        return values.map({"True": True, "False": False}, na_action="ignore").astype("boolean")
    if column in _TEXT_COLUMNS:
        return values
    try:
        if len(there) < len(values) and (column in _WHOLE_COLUMNS or column.endswith("_offset")):
            return values.astype("Int64")
        if len(there) == len(values) and not values.str.contains("[^0-9-]").any():
            return values.map(int)
        return values.map(float, na_action="ignore").astype(float)  # Python's float reads back what repr wrote
    except ValueError:
        return values


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
        raise _unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written: {error.strerror or error}.", "Choose another folder.")


def write_meta(
    folder: str | Path,
    signature: Mapping[str, Any],
    *,
    command: str = "",
    finished: bool = True,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Write `meta.json`: the signature, the exact command, UTC time, whether the run came to its end, and notes.

    The signature says what the numbers are of (model, task, data, seed ...) and decides whether a run is resumed;
    notes are what is worth telling beside it (texts split, proofs passed).
    """
    meta = {
        "signature": signature,
        "command": command,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": finished,
        "notes": notes or {},
        "schema": SCHEMA_VERSION,
    }
    return write_atomically(Path(folder) / "meta.json", to_json(meta))


def read_meta(folder: str | Path) -> dict[str, Any]:
    """The contents of a run's `meta.json`; raises DataError where it is missing, damaged or of a newer schema."""
    path = Path(folder) / "meta.json"
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder} has no meta.json.", _NAME_A_RUN) from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", "Write the run again.") from error
    if not isinstance(meta, dict) or not isinstance(meta.get("signature"), dict):
        raise DataError(f"{path} was not written by headlab.", _NAME_A_RUN)
    if meta.get("schema", 0) > SCHEMA_VERSION:
        raise DataError(
            f"{path} has schema {meta['schema']}, this headlab reads up to {SCHEMA_VERSION}.", "Update headlab."
        )
    return meta


def to_json(value: Any) -> str:
    """JSON text of nested mappings and sequences, numpy numbers, arrays and paths included."""
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=1)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


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
        raise _unwritable(folder, error) from error


def clear_run(folder: str | Path) -> None:
    """Remove the files of a run, by name, and leave every other file alone."""
    folder = Path(folder)
    paths = [folder / name for name in _OWN_FILES]
    paths += [folder / f"{name}.{format}" for name in SCHEMA for format in FORMATS]
    paths += [path for pattern in _OWN_PATTERNS for path in folder.glob(pattern)]
    for path in paths:
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
    tables = {"heads": heads, "sweep": sweep, "examples": examples}
    paths = [save_table(table, folder, name, format) for name, table in tables.items() if table is not None]
    if not paths and meta is None:
        raise UsageError("There is nothing to save.", "Pass heads=, sweep=, examples= or meta=.")
    path = Path(folder) / "meta.json"
    if meta is not None:
        paths.append(write_meta(folder, meta, command=command, notes=notes))
    elif not path.exists():
        paths.append(write_meta(folder, {}, command=command, notes=notes))
    return paths
