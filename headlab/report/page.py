"""The report: one HTML file with everything in it, which loads nothing from anywhere."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from headlab.errors import DataError
from headlab.report.definitions import EVIDENCE_SUFFIXES, SWEEP, define, evidence
from headlab.report.figures.style import draw
from headlab.report.pictures import Picture, pictures
from headlab.report.runs import Run, find_runs
from headlab.report.summary import number, summarize
from headlab.report.tokens import readable_tokens
from headlab.tables import head_names, label_columns, write_atomically

_DOES, _COSTS = "What each head does", "What removing heads costs"


def write_report(folders: str | Path | Iterable[str | Path], out: str | Path | None = None) -> Path:
    """Write one self-contained HTML file about one or more run folders, or folders of runs; returns its path.

    Without `out`, it is `report.html` in the first folder. The file is replaced as a whole or not at all.
    Raises DataError for a folder without tables, UsageError where the file cannot be written.
    """
    given = [Path(folders)] if isinstance(folders, (str, Path)) else [Path(folder) for folder in folders]
    if not given:
        raise DataError("No folder was named.", "Name a folder that headlab dump or headlab sweep wrote.")
    runs = find_runs(given)
    path = Path(out) if out is not None else given[0] / "report.html"
    if path.is_dir():
        path = path / "report.html"
    return write_atomically(path, render(runs))


def render(runs: list[Run]) -> str:
    """The HTML text of a report."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    views = [_view(run, f"run-{i}") for i, run in enumerate(runs, start=1)]
    return environment.get_template("template.html").render(runs=views)


def _view(run: Run, anchor: str) -> dict[str, Any]:
    """What the template shows of one run."""
    return {
        "anchor": anchor,
        "title": run.title,
        "summary": summarize(run),
        "sections": _sections([_embedded(picture) for picture in pictures(run)]),
        "tables": _tables(run),
        "texts": _texts(run),
        "command": run.meta.get("command") or "",
        "time": run.meta.get("time") or "",
        "signature": _flat(run.signature),
        "notes": _flat(run.meta.get("notes") or {}),
        "data": _data(run),
    }


def _sections(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Main figures side by side, then maps and scores; the many statistics fold away."""
    kinds = {picture["section"] for picture in drawn}
    main = _DOES if "curves" not in kinds else _COSTS if "labels" not in kinds else f"{_DOES}, and {_COSTS.lower()}"
    titles = {"labels": main, "maps": "Attention maps", "scores": "What each head is worth",
              "statistics": "Every statistic over layer and head"}  # fmt: skip
    places = [{"title": title, "folded": key == "statistics",
               "pictures": [p for p in drawn if p["section"] in ((key, "curves") if key == "labels" else (key,))]}
              for key, title in titles.items()]  # fmt: skip
    return [place for place in places if place["pictures"]]


def _embedded(picture: Picture) -> dict[str, Any]:
    buffer = io.BytesIO()
    draw(picture.figure, buffer, format="svg")
    width, height = (round(96 * inches) for inches in picture.figure.get_size_inches())
    source = "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    return {"section": picture.section, "source": source, "caption": picture.caption, "wide": picture.wide,
            "width": width, "height": height}  # fmt: skip


def _tables(run: Run) -> list[dict[str, Any]]:
    tables = []
    if run.heads is not None:
        tables += _head_tables(run.heads)
    if run.sweep is not None:
        tables.append(_table("Sweep", run.sweep, {c: SWEEP.get(str(c), define(str(c))) for c in run.sweep.columns},
                             like=False))  # fmt: skip
    return tables


def _head_tables(heads: pd.DataFrame) -> list[dict[str, Any]]:
    """The head table, and for each label a table of its evidence: together, every column."""
    labels = label_columns(heads)
    parts = {label: [s for s in EVIDENCE_SUFFIXES if f"{label}_{s}" in heads.columns] for label in labels}
    elsewhere = {f"{label}_{suffix}" for label in labels for suffix in parts[label]} | set(labels)
    names = pd.Series(head_names(heads.index), index=heads.index, name="head")
    main = heads[[c for c in heads.columns if c not in elsewhere]]
    tables = [_table("Heads", pd.concat([names, main], axis=1), {c: define(str(c)) for c in main.columns})]
    for label in labels:
        rows = heads[[label, *(f"{label}_{suffix}" for suffix in parts[label])]]
        meanings = {label: define(label)} | {f"{label}_{suffix}": evidence(suffix) for suffix in parts[label]}
        tables.append(_table(f"Label: {define(label).title}", pd.concat([names, rows], axis=1), meanings))
    return tables


def _table(title: str, table: pd.DataFrame, meanings: Mapping[Any, Any], *, like: bool = True) -> dict[str, Any]:
    """One table for the template; `like` says that the numbers of a column are of one kind, and get equal decimals."""
    columns = [str(column) for column in table.columns]
    return {
        "title": title,
        "columns": columns,
        "numeric": [pd.api.types.is_numeric_dtype(table[column]) for column in table.columns],
        "legend": [(column, meanings[column]) for column in columns if column in meanings and meanings[column].text],
        "rows": list(zip(*(_texts_of(table[column], like) for column in table.columns), strict=True)),
    }


def _texts_of(values: pd.Series, like: bool) -> list[str]:
    sizes = values.abs() if like and pd.api.types.is_float_dtype(values) else pd.Series(dtype=float)
    largest = sizes[np.isfinite(sizes.astype(float))].max() if len(sizes) else 0
    if not largest > 1e-6:
        return [number(value) for value in values]
    decimals = (
        0 if largest >= 1000 else 1 if largest >= 100 else 3 if largest >= 0.1 else 3 - int(np.floor(np.log10(largest)))
    )
    return ["–" if pd.isna(value) else f"{value:.{decimals}f}" for value in values]


def _texts(run: Run) -> list[dict[str, Any]]:
    """Tokens of the stored maps as text: fonts in a figure may lack letters, and figures cannot be searched."""
    texts: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
    for item in run.maps:
        for side, tokens in (("queries", item.query_tokens), ("keys", item.key_tokens)):
            name = f"Text {item.text}" + (f", {side}" if list(item.query_tokens) != list(item.key_tokens) else "")
            texts.setdefault((name, tuple(tokens)), {"name": name, "tokens": readable_tokens(tokens)})
    return list(texts.values())


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            rows += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
            rows.append((f"{prefix}{key}", "; ".join(map(str, value))))
        else:
            rows.append((f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    return rows


def _data(run: Run) -> dict[str, Any]:
    """The tables as JSON columns, for scripts that read the page."""
    tables = {"heads": run.heads.reset_index() if run.heads is not None else None, "sweep": run.sweep}
    return {"name": run.name, "meta": run.meta,
            **{key: _columns(table) for key, table in tables.items() if table is not None}}  # fmt: skip


def _columns(table: pd.DataFrame) -> dict[str, list[Any]]:
    return {str(column): [_plain(value) for value in table[column].tolist()] for column in table.columns}


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null and a string."""
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, float):
        return float(f"{value:.7g}") if np.isfinite(value) else str(value)
    return value
