"""What the page's scripts read: tables as columns, maps packed, curves as points, all as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from headlab.base.masks import head_names
from headlab.report.colours import ATTENTION, COLOURS, DIVERGING, GREY, PALE, SEQUENTIAL
from headlab.report.facts import define
from headlab.report.figures.labels import carried_labels, cell_text, legend_keys
from headlab.report.figures.style import is_dark
from headlab.report.page.compare import Pair, score_agreement
from headlab.report.page.quantise import BUDGET, pack_all
from headlab.report.series import curve_series, training_series
from headlab.runs.columns import EVIDENCE
from headlab.runs.maps import AttentionMap, is_special
from headlab.runs.readable_tokens import readable_tokens
from headlab.runs.stored_run import Run
from headlab.runs.tables import HEAD_INDEX, label_columns


def run_payload(run: Run, budget: int = BUDGET) -> tuple[dict[str, Any], int]:
    """Everything that the page needs of one run, and the characters its maps take of the budget."""
    maps, spent = maps_payload(run.maps, run.heads, budget)
    data: dict[str, Any] = {"name": run.name, "title": run.title, "model": run.model, "meta": run.meta, **maps}
    if run.heads is not None:
        data |= heads_payload(run.heads)
    if run.sweep is not None:
        data["sweep"] = columns_of(run.sweep)
        data["curves"] = plain(curve_series(run.sweep))
    if run.training is not None:
        data["training"] = training_payload(run.training)
        data["training_table"] = columns_of(run.training)
    return data, spent


def heads_payload(heads: pd.DataFrame) -> dict[str, Any]:
    """A head table for the head map: all columns, names, labels with mark and colour, definitions."""
    labels = label_columns(heads)
    keys = legend_keys(labels)
    evidence = {f"{label}_{suffix}" for label in labels for suffix in EVIDENCE}
    numeric = [str(c) for c in heads.columns if _is_number(heads[c]) and c not in evidence and c not in labels]
    main = [carried_labels(row, labels) for _, row in heads.iterrows()] if labels else []
    return {
        "heads": columns_of(heads.reset_index()),
        "names": head_names(heads.index),
        "numeric": [c for c in numeric if c not in {"n_queries", "kv_group"}],
        "labels": [
            {
                "name": label,
                "title": define(label).title,
                "text": define(label).text,
                "mark": keys[label][0],
                "colour": keys[label][1],
                "dark": is_dark(keys[label][1]),
                "defined": bool(heads[label].notna().any()),
            }
            for label in labels
        ],
        "marks": ["" if not found else cell_text([keys[label][0] for label in found]) for found in main],
        "carried": [None if found is None else [labels.index(label) for label in found] for found in main],
        "definitions": {str(c): list(define(str(c))[:3]) for c in heads.columns},
        "agreement": records(score_agreement(heads)),
    }


def training_payload(training: pd.DataFrame) -> list[dict[str, Any]]:
    """Head tables over the steps of a training, one entry for each model and seed in them."""
    series = []
    for name, rows in training_series(training):
        steps = sorted(int(step) for step in rows["step"].unique())
        first = rows[rows["step"] == steps[0]].set_index(list(HEAD_INDEX)).sort_index()
        numeric = [str(c) for c in first.columns if _is_number(first[c]) and c not in ("step", "seed")]
        frames = [rows[rows["step"] == step].set_index(list(HEAD_INDEX)).reindex(first.index) for step in steps]
        values = {column: [[plain(v) for v in frame[column].tolist()] for frame in frames] for column in numeric}
        heads = columns_of(first.index.to_frame(index=False))
        titles = {column: define(column).title for column in numeric}
        series.append(
            {
                "name": name,
                "steps": steps,
                "names": head_names(first.index),
                "heads": heads,
                "values": values,
                "titles": titles,
            }
        )
    return series


def _is_number(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def maps_payload(maps: Sequence[AttentionMap], heads: pd.DataFrame | None, budget: int) -> tuple[dict[str, Any], int]:
    """Stored maps, packed, with their texts named once; `left_out` counts those that the budget had no room for."""
    packed, spent = pack_all([item.weights for item in maps], budget)
    kinds = {item.kind for item in maps} | (set(heads.index.get_level_values("kind")) if heads is not None else set())
    names = head_names([(m.kind, m.layer, m.head) for m in maps], single_stack=len(kinds) <= 1)
    rows = {} if heads is None else {head: i for i, head in enumerate(heads.index)}
    texts: dict[tuple, int] = {}
    entries = []
    for item, name, stored in zip(maps, names, packed, strict=False):
        text = (item.text, tuple(item.query_tokens), tuple(item.key_tokens))
        place = texts.setdefault(text, len(texts))
        entries.append(
            {
                "name": name,
                "row": rows.get((item.kind, item.layer, item.head), -1),
                "text": place,
                "shape": list(stored.shape),
                "bits": stored.bits,
                "floor": stored.floor,
                "data": stored.data,
            }
        )
    first = {texts[key]: m for m in reversed(maps) if (key := _text_key(m)) in texts}
    return {
        "maps": entries,
        "texts": [_text(first[i]) for i in range(len(texts))],
        "left_out": len(maps) - len(packed),
    }, spent


def _text_key(item: AttentionMap) -> tuple:
    return item.text, tuple(item.query_tokens), tuple(item.key_tokens)


def _text(item: AttentionMap) -> dict[str, Any]:
    """The tokens of both sides as people read them, and the positions of the special ones."""
    sides = {"queries": (item.query_tokens, item.query_special), "keys": (item.key_tokens, item.key_special)}
    found: dict[str, Any] = {"id": item.text, "same": list(item.query_tokens) == list(item.key_tokens)}
    for side, (tokens, special) in sides.items():
        if side == "keys" and found["same"]:
            continue
        flags = special if special is not None else is_special(tokens)
        found[side] = readable_tokens(tokens)
        found[f"{side}_special"] = [i for i, flag in enumerate(flags) if flag]
    return found


def palettes() -> dict[str, Any]:
    """Colour scales of the page, the same as those of the figures."""
    names = {"sequential": SEQUENTIAL, "diverging": DIVERGING, "attention": ATTENTION}
    places = np.linspace(0, 1, 17)
    sampled: dict[str, Any] = {
        key: [mpl.colors.to_hex(mpl.colormaps[name](x)) for x in places] for key, name in names.items()
    }
    sampled["attention"][0] = "#ffffff"
    return {**sampled, "lines": list(COLOURS[:6]), "grey": GREY, "pale": PALE}


def compare_payload(pairs: Iterable[Pair], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What the comparison shows of each pair of runs; runs are named by their place in the report."""
    place = {id(run): i for i, run in enumerate(runs)}
    return [
        {
            "left": place[id(pair.left)],
            "right": place[id(pair.right)],
            "shared": pair.n_shared,
            "same_model": pair.same_model,
            "correlations": records(pair.correlations),
            "changes": records(pair.label_changes),
        }
        for pair in pairs
    ]


def columns_of(table: pd.DataFrame) -> dict[str, list[Any]]:
    """A table as {column: values}, in values that JSON has."""
    return {str(column): [plain(value) for value in table[column].tolist()] for column in table.columns}


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as one dictionary for each row, in values that JSON has."""
    return [{str(key): plain(value) for key, value in row.items()} for row in table.to_dict("records")]


def plain(value: Any) -> Any:
    """A value as JSON has it: nothing for NaN, text for infinity, seven digits for numbers."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, float):
        return float(f"{value:.7g}") if np.isfinite(value) else str(value)
    return value
