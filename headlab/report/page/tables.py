"""The tables of a run as rows of text, with a legend of what each column means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from headlab.base.masks import head_names
from headlab.report.facts import define
from headlab.report.page.summary import number
from headlab.runs.columns import EVIDENCE, SWEEP
from headlab.runs.readable_tokens import readable_tokens
from headlab.runs.stored_run import Run
from headlab.runs.tables import label_columns


def tables_of(run: Run) -> list[dict[str, Any]]:
    """The head table, the evidence of each label, and the sweep."""
    tables = []
    if run.heads is not None:
        tables += _head_tables(run.heads)
    if run.sweep is not None:
        meanings = {c: SWEEP.get(str(c)) or define(str(c)) for c in run.sweep.columns}
        tables.append(_table("Sweep", run.sweep, meanings, like=False, source="sweep"))
    if run.training is not None:
        meanings = {c: define(str(c)) for c in run.training.columns}
        tables.append(_table("Heads over training", run.training, meanings, source="training_table"))
    return tables


def _head_tables(heads: pd.DataFrame) -> list[dict[str, Any]]:
    """The head table, and for each label a table of its evidence: together, every column."""
    labels = label_columns(heads)
    parts = {label: [s for s in EVIDENCE if f"{label}_{s}" in heads.columns] for label in labels}
    elsewhere = {f"{label}_{suffix}" for label in labels for suffix in parts[label]} | set(labels)
    names = pd.Series(head_names(heads.index), index=heads.index, name="head")
    main = heads[[c for c in heads.columns if c not in elsewhere]]
    tables = [_table("Heads", pd.concat([names, main], axis=1), {c: define(str(c)) for c in main.columns})]
    for label in labels:
        rows = heads[[label, *(f"{label}_{suffix}" for suffix in parts[label])]]
        meanings = {label: define(label)} | {f"{label}_{suffix}": EVIDENCE[suffix] for suffix in parts[label]}
        tables.append(_table(f"Label: {define(label).title}", pd.concat([names, rows], axis=1), meanings))
    return tables


def _table(
    title: str, table: pd.DataFrame, meanings: Mapping[Any, Any], *, like: bool = True, source: str = "heads"
) -> dict[str, Any]:
    """One table for the template; `like` says that the numbers of a column are of one kind, and get equal decimals."""
    columns = [str(column) for column in table.columns]
    return {
        "title": title,
        "source": source,
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


def texts_of(run: Run) -> list[dict[str, Any]]:
    """Tokens of the stored maps as text: fonts in a figure may lack letters, and figures cannot be searched."""
    texts: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
    for item in run.maps:
        for side, tokens in (("queries", item.query_tokens), ("keys", item.key_tokens)):
            name = f"Text {item.text}" + (f", {side}" if list(item.query_tokens) != list(item.key_tokens) else "")
            texts.setdefault((name, tuple(tokens)), {"name": name, "tokens": readable_tokens(tokens)})
    return list(texts.values())


def flat_of(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted key, text) rows."""
    rows = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            rows += flat_of(value, f"{prefix}{key}.")
        elif isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
            rows.append((f"{prefix}{key}", "; ".join(map(str, value))))
        else:
            rows.append((f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
    return rows
