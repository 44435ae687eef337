"""The tables of a run, parquet or csv: which there are, the columns that they cannot do without, saving and loading."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from headlab.base.errors import DataError, unknown_name
from headlab.runs.columns import SWEEP
from headlab.runs.files import META, write_atomically

SCHEMA_VERSION = 1
HEAD_INDEX = ("kind", "layer", "head")
SWEEP_COLUMNS = tuple(name for name in SWEEP if name not in ("removed", "run"))
# Columns that a table cannot do without; any further column is kept as it is.
SCHEMA: dict[str, tuple[str, ...]] = {
    "heads": HEAD_INDEX,
    "sweep": SWEEP_COLUMNS,
    "examples": ("run", "example"),
    "heads_over_training": (*HEAD_INDEX, "step"),
    "maps_words": (*HEAD_INDEX, "text", "query", "query_word", "key", "key_word", "weight"),
}
PLAIN = ("gates", "single", "one_head_per_layer", "areas", "stability", "correlation")  # csv without a schema
FORMATS = ("parquet", "csv")
_TEXT_COLUMNS = ("kind", "labels", "strategy", "ablation", "kinds", "budget", "metric", "split", "run")
_WHOLE_COLUMNS = ("layer", "head", "kv_group", "n_queries", "seed", "n_removed", "n_heads", "n_examples", "example")


def label_columns(heads: pd.DataFrame) -> list[str]:
    """The label columns of a head table: those with a `<label>_score` beside them."""
    columns = [str(c) for c in heads.columns]
    return [c for c in columns if f"{c}_score" in columns]


def score_columns(heads: pd.DataFrame) -> list[str]:
    """The importance columns of a head table: `score_<name>`."""
    return [str(c) for c in heads.columns if str(c).startswith("score_")]


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


def save_plain(table: pd.DataFrame, folder: str | Path, name: str) -> Path:
    """Write a further table of a run as `<name>.csv`, atomically; raises UsageError for a name that is not known."""
    if name not in PLAIN:
        raise unknown_name("table", name, PLAIN)
    return write_atomically(Path(folder) / f"{name}.csv", table.to_csv(index=False))


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
        schema = json.loads((Path(folder) / META).read_text(encoding="utf-8")).get("schema", 0)
    except (OSError, ValueError, AttributeError):
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
