"""Reading task data: JSON lines, CSV and TSV, with a header or without, plain or gzip, one file or several."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headlab.base.errors import DataError
from headlab.models.texts.reading import read_text

TEXT_NAMES = ("text", "sentence", "content", "review", "question", "sentences", "texts")
LABEL_NAMES = ("label", "labels", "class", "category", "target", "gold", "sentiment", "topic")
_TABULAR = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_JSON = (".jsonl", ".ndjson", ".json")
_FORMATS = "Give a .jsonl, .csv or .tsv file (.gz too)."

Source = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Table:
    """Records of one or more files: `rows` map column names to values, `places` say where each row was read."""

    columns: tuple[str, ...]
    rows: list[dict[str, object]]
    places: list[str]

    def column(self, wanted: str | None, known: Iterable[str], noun: str, option: str) -> str:
        """Name of the column to use: the wanted one, else the first known name; DataError lists what there is."""
        if wanted is not None:
            if wanted in self.columns:
                return wanted
            raise DataError(
                f"There is no column {wanted!r} in {self.places[0].rsplit(' line ', 1)[0]}.",
                f"Its columns are {_listed(self.columns)}; choose the {noun} with {option}.",
            )
        lower = {name.lower(): name for name in reversed(self.columns)}
        for name in known:
            if name in lower:
                return lower[name]
        raise DataError(
            f"No column of {self.places[0].rsplit(' line ', 1)[0]} is recognised as the {noun}.",
            f"Its columns are {_listed(self.columns)}; choose one with {option}.",
        )


def files(source: Source) -> list[Path]:
    """The files that a data option names: one path, several, or a folder's data files in alphabetical order."""
    if not isinstance(source, str | Path):
        return [path for part in source for path in files(part)]
    path = Path(source)
    if not path.exists():
        raise DataError(f"There is no file {str(path)!r}.", "Check the path given as data.")
    if not path.is_dir():
        return [path]
    found = [child for child in sorted(path.iterdir()) if suffix(child) in (*_TABULAR, *_JSON, ".txt")]
    if not found:
        raise DataError(f"The folder {str(path)!r} holds no data file.", _FORMATS)
    return found


def suffix(path: Path) -> str:
    """The file's format as its ending, `.gz` left out."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def digest(parts: Iterable[str]) -> str:
    """SHA-256 of the parts' text: the same for a file and its compressed copy."""
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest())
    return total.hexdigest()


def open_table(source: Source, named: Sequence[str | None] = ()) -> tuple[Table, str, str]:
    """The records of all files that a data option names, their names (no folders), and the SHA-256 of their text."""
    paths = files(source)
    texts = [read_text(path) for path in paths]
    tables = [read_table(path, text, named) for path, text in zip(paths, texts, strict=True)]
    return join_tables(tables), ",".join(path.name for path in paths), digest(texts)


def cell_text(value: object, place: str, column: str) -> str:
    """A record's value as text; DataError where it is missing or no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"{place}: the value of {column!r} is {value!r}, not text.", "Correct the record.")
    return str(int(value)) if float(value).is_integer() else str(value)


def written_text(value: object, place: str, column: str) -> str:
    """A record's value as a text for a model; DataError where it is a number, or holds half a character."""
    if not isinstance(value, str):
        raise DataError(
            f"{place}: the value of {column!r} is {value!r}, not text.", "Correct the record: a text stands in quotes."
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(f"{place}: {column!r} holds half of a character (a lone surrogate).", "Correct the record.")
    return value


def read_table(path: Path, text: str, named: Sequence[str | None] = ()) -> Table:
    """The records in a file's text, in file order; `named` are column names the user asked for.

    The first line of a CSV or TSV file is a header where the user names columns, or where it holds one of the usual
    names (text, sentence, label, ...). Without a header, two columns are `text` and `label`, more are `0`, `1`, ...,
    and naming columns by such numbers says that there is no header. Raises DataError, naming the line, for what
    cannot be read.
    """
    ending = suffix(path)
    if ending in _JSON:
        return _read_json(path, text)
    if ending in _TABULAR or (ending == ".txt" and "\t" in text):
        return _read_separated(path, text, _TABULAR.get(ending, "\t"), [name for name in named if name])
    raise DataError(f"{str(path)!r} has the unknown format {ending or '(no ending)'!r}.", _FORMATS)


def join_tables(tables: Sequence[Table]) -> Table:
    """Tables of the same kind one after the other, with the columns that all of them have."""
    columns = tuple(name for name in tables[0].columns if all(name in table.columns for table in tables))
    return Table(columns, [r for t in tables for r in t.rows], [p for t in tables for p in t.places])


def _read_json(path: Path, text: str) -> Table:
    rows: list[dict[str, object]] = []
    places: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: JSON strings may hold U+2028
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path} line {number} is not JSON: {error}.", "Write one JSON object a line.") from error
        if not isinstance(record, dict):
            raise DataError(f"{path} line {number} is no JSON object.", 'Write lines like {"text": "...", "label": 1}.')
        rows.append(record)
        places.append(f"{path} line {number}")
    columns = tuple(name for name in rows[0] if all(name in row for row in rows))
    return Table(columns, rows, places)


def _read_separated(path: Path, text: str, separator: str, named: Sequence[str]) -> Table:
    lines = list(_split_lines(path, text, separator))
    first = [cell.strip() for cell in lines[0][1]]
    has_header = _is_header(first, named)
    columns = first if has_header else [str(place) for place in range(len(first))]
    if not has_header and len(columns) == 2 and not named:
        columns = ["text", "label"]
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns named {twice!r}.", "Give each column a name of its own.")
    body = lines[1:] if has_header else lines
    if not body:
        raise DataError(f"{str(path)!r} holds a header and nothing else.", "Give a file with at least one record.")
    for number, cells in body:
        if len(cells) != len(columns):
            raise DataError(
                f"{path} line {number} has {len(cells)} columns, not {len(columns)} as the lines before.",
                "Correct the line, or quote what holds a separator (CSV).",
            )
    rows: list[dict[str, object]] = [dict(zip(columns, cells, strict=True)) for _, cells in body]
    return Table(tuple(columns), rows, [f"{path} line {number}" for number, _ in body])


def _is_header(cells: Sequence[str], named: Sequence[str]) -> bool:
    """A user who names columns says that there is a header; otherwise usual names among short cells show one."""
    if named:
        return not any(name.isdigit() for name in named)
    usual = {*TEXT_NAMES, *LABEL_NAMES, "sentence_good", "sentence_bad"}
    return any(cell.lower() in usual for cell in cells) and all(len(cell.split()) <= 2 for cell in cells)


def _split_lines(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    if separator == "\t":  # as data sets write it: quotes are text
        for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
            if line.strip():
                yield number, line.split("\t")
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num} cannot be read: {error}.", "Correct the line.") from error


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name if len(name) <= 40 else name[:37] + "...") for name in names) or "(none)"
