"""The report: one HTML file with everything in it, which loads nothing from anywhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from headlab.base.errors import DataError, UsageError
from headlab.report import web
from headlab.report.facts import told_by
from headlab.report.figures.style import draw
from headlab.report.page.compare import Pair, compare_runs
from headlab.report.page.payload import compare_payload, palettes, run_payload
from headlab.report.page.quantise import BUDGET
from headlab.report.page.summary import compare_sentences, summarize
from headlab.report.page.tables import flat_of, tables_of, texts_of
from headlab.report.pictures import Picture, main_pictures
from headlab.runs.files import REPORT, write_atomically
from headlab.runs.stored_run import Run, find_runs

_START = 1 << 14  # bytes; the title of a report stands well within them


def write_report(folders: str | Path | Iterable[str | Path], out: str | Path | None = None) -> Path:
    """Write one self-contained HTML file about one or more run folders, or folders of runs; returns its path.

    Without `out`, it is `report.html` in the first folder. The file is replaced as a whole or not at all.
    Raises DataError for a folder without tables, UsageError where the file cannot be written, does not end in .html,
    or is there and is no report.
    """
    given = [Path(folders)] if isinstance(folders, (str, Path)) else [Path(folder) for folder in folders]
    if not given:
        raise DataError("No folder was named.", "Name a folder that headlab dump or headlab sweep wrote.")
    runs = find_runs(given)
    path = Path(out) if out is not None else given[0] / REPORT
    if path.is_dir():
        path = path / REPORT
    _check_place(path)
    return write_atomically(path, render(runs))


def _check_place(path: Path) -> None:
    """Raise UsageError for a place where a report would replace, or pass for, something else."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"A report is an HTML file, and {path} does not end in .html.", "Choose a name like run.html.")
    if not path.exists():
        return
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "Choose another --out.") from error
    if start.strip() and b"<title>headlab report: " not in start:
        raise UsageError(f"{path} is no report of headlab and is left as it is.", "Choose another --out.")


def render(runs: Sequence[Run], *, embedded: bool = False) -> str:
    """The HTML text of a report; `embedded` leaves out what a notebook has no need of: headings, figures, tables."""
    with told_by(runs):
        return _rendered(runs, embedded)


def _rendered(runs: Sequence[Run], embedded: bool) -> str:
    loader = jinja2.FileSystemLoader(web.FOLDER)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    views, left = [], BUDGET
    for i, run in enumerate(runs, start=1):
        data, spent = run_payload(run, left)
        left -= spent
        views.append(_view(run, f"run-{i}", data, embedded))
    pairs = compare_runs(runs)
    page = {"palettes": palettes(), "pairs": compare_payload(pairs, runs), "steps": [run.step for run in runs]}
    return environment.get_template("page.html").render(
        runs=views,
        embedded=embedded,
        comparison=_comparison(runs, pairs),
        page=page,
        policy=web.policy(),
        style=Markup(web.style()),
        script=Markup(web.script()),
    )


def _comparison(runs: Sequence[Run], pairs: Sequence[Pair]) -> dict[str, Any] | None:
    """What stands above the runs where there are several."""
    if len(runs) < 2:
        return None
    sweeps = sum(run.sweep is not None for run in runs)
    return {"summary": compare_sentences(runs, pairs), "curves": sweeps > 1, "pairs": bool(pairs)}


def _view(run: Run, anchor: str, data: dict[str, Any], embedded: bool) -> dict[str, Any]:
    """What the template shows of one run."""
    return {
        "anchor": anchor,
        "title": run.title,
        "unfinished": run.meta.get("finished") is False,
        "summary": [] if embedded else summarize(run),
        "has_heads": run.heads is not None and len(run.heads) > 0,
        "has_sweep": bool(data.get("curves")),
        "has_training": bool(data.get("training")),
        "n_maps": len(data["maps"]),
        "pictures": [] if embedded else [_embedded(picture) for picture in main_pictures(run)],
        "tables": [] if embedded else tables_of(run),
        "texts": [] if embedded else texts_of(run),
        "command": run.meta.get("command") or "",
        "time": run.meta.get("time") or "",
        "signature": flat_of(run.signature),
        "notes": flat_of(run.meta.get("notes") or {}),
        "data": data,
    }


def _embedded(picture: Picture) -> dict[str, Any]:
    buffer = io.BytesIO()
    draw(picture.figure, buffer, format="svg")
    width, height = (round(96 * inches) for inches in picture.figure.get_size_inches())
    source = "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    return {"source": source, "caption": picture.caption, "wide": picture.wide, "width": width, "height": height}
