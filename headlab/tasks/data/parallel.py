"""Reading texts with their translations: two files of lines, tables, JSON lines, or a test set of sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headlab.base.errors import DataError, UsageError, unknown_name
from headlab.models.texts.reading import read_text
from headlab.tasks.data.records import Table, digest, files, read_table, suffix, written_text

SOURCE_NAMES = ("source", "src", "text", "sentence", "en")
REFERENCE_NAMES = ("reference", "ref", "target", "tgt", "translation")
_TABLES = (".tsv", ".tab", ".csv", ".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Parallel:
    """Sources with one or more references each, in file order, blank ones included; `pair` is `en-de` or empty."""

    sources: list[str]
    references: list[tuple[str, ...]]
    name: str
    pair: str = ""

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def sha256(self) -> str:
        """Hash of all texts, the same whichever format they came in."""
        return digest([*self.sources, *(text for texts in self.references for text in texts)])


def read_pairs(
    source: str | Path, reference: str | Path, columns: tuple[str | None, str | None], pair: str
) -> Parallel:
    """Two files of which line n belongs to line n; DataError, naming the lines, where one is longer."""
    first = read_lines(source, columns[0], SOURCE_NAMES, pair.partition("-")[0])
    second = read_lines(reference, columns[1], REFERENCE_NAMES, pair.partition("-")[2])
    if len(first) != len(second):
        (longer, n), (shorter, m) = sorted(
            ((str(source), len(first)), (str(reference), len(second))), key=lambda one: -one[1]
        )
        which = f"line {n}" if n == m + 1 else f"lines {m + 1} to {n}"
        cause = f"{longer} has {n} lines and {shorter} {m}: {which} of {Path(longer).name} without counterpart."
        raise DataError(cause, "Line n of each file belongs to line n of the other.")
    names = ",".join(dict.fromkeys((Path(source).name, Path(reference).name)))
    return Parallel(first, [(text,) for text in second], names, pair)


def read_together(source: Path | str | Sequence, columns: tuple[str | None, str | None], pair: str) -> Parallel:
    """Tables (TSV, CSV, JSON lines) that hold a source and its reference in every row."""
    paths = files(source)
    sides: tuple[list[str], list[str]] = ([], [])
    for path in paths:
        if suffix(path) not in _TABLES:
            raise DataError(f"{path} holds lines of one language.", "Give two files, as source and reference.")
        for place, names in enumerate((SOURCE_NAMES, REFERENCE_NAMES)):
            language = pair.split("-", 1)[place] if pair else ""
            sides[place].extend(read_lines(path, columns[place], names, language, place))
    return Parallel(sides[0], [(text,) for text in sides[1]], ",".join(path.name for path in paths), pair)


def read_lines(path: str | Path, column: str | None, known: Sequence[str], language: str, place: int = 0) -> list[str]:
    """The texts of one side of a file: its lines, or a column of it; blank ones are kept.

    The column is the one asked for, else the one named after the language or after its part, else the one at `place`.
    """
    path = Path(path)
    text = read_text(path)
    ending = suffix(path)
    if ending not in _TABLES:
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if ending in (".tsv", ".tab"):
        return _column_of_tsv(path, text, column, known, language, place)
    table = read_table(path, text, [column])
    if "translation" in table.columns and isinstance(table.rows[0]["translation"], dict):
        return [_of_language(row["translation"], language, where) for row, where in _placed(table)]
    named = table.column(column, (language, *known), "text", "text_column and label_column")
    return [written_text(row[named], where, named) for row, where in _placed(table)]


def _placed(table: Table) -> list[tuple[dict[str, object], str]]:
    return list(zip(table.rows, table.places, strict=True))


def _of_language(texts: object, language: str, where: str) -> str:
    if not isinstance(texts, dict) or not isinstance(texts.get(language), str):
        there = ", ".join(texts) if isinstance(texts, dict) else "none"
        raise DataError(
            f"{where} has no text in {language!r}; it has {there}.", "Name the languages with pair (en-de)."
        )
    return texts[language]


def _column_of_tsv(
    path: Path, text: str, column: str | None, known: Sequence[str], language: str, place: int
) -> list[str]:
    """Quotes are text, and so are blank cells; the first line is a header where it holds a name that is looked for."""
    rows = [line.removesuffix("\r").split("\t") for line in text.removesuffix("\n").split("\n")]
    first = [cell.strip().lower() for cell in rows[0]]
    wanted = [name.lower() for name in ((column,) if column else (language, *known)) if name]
    header = next((first.index(name) for name in wanted if name in first), None)
    if column and header is None:
        raise DataError(f"There is no column {column!r} in {path}.", f"Its first line holds {', '.join(rows[0])}.")
    usual = {*SOURCE_NAMES, *REFERENCE_NAMES, language.lower()} - {""}
    start = int(header is not None or (len(first) > 1 and len(usual & set(first)) > 1))
    chosen = place if header is None else header
    for number, cells in enumerate(rows, start=1):
        if len(cells) != len(first) or chosen >= len(cells):
            raise DataError(
                f"{path} line {number} has {len(cells)} columns; the first line has {len(first)}.",
                "Put one tab between the texts of a line.",
            )
    return [cells[chosen] for cells in rows[start:]]


def read_testset(name: str, pair: str) -> Parallel:
    """A test set that sacrebleu knows, downloaded by it; DataError where that fails, UsageError for unknown ones."""
    from sacrebleu import utils

    known = utils.get_available_testsets()
    if name not in known:
        raise unknown_name("test set of sacrebleu", name, known)
    if pair not in utils.get_langpairs_for_testset(name):
        pairs = ", ".join(sorted(utils.get_langpairs_for_testset(name)))
        raise UsageError(f"The test set {name} has no pair {pair or '(none given)'}.", f"Choose one of {pairs}.")
    try:
        paths = [utils.get_source_file(name, pair), *utils.get_reference_files(name, pair)]
        columns = [read_lines(path, None, (), "") for path in paths]
    except (Exception, SystemExit) as error:  # sacrebleu lets errors of urllib and tarfile pass, and exits on some
        raise DataError(
            f"sacrebleu cannot download {name} {pair}: {error}.",
            "Connect to the network once, or give --source and --reference files.",
        ) from error
    return Parallel(columns[0], list(zip(*columns[1:], strict=True)), f"sacrebleu:{name}/{pair}", pair)
