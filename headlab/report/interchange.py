"""Maps and head scores in the shapes and files of other tools: bertviz, circuitsvis, duo-attention, retrieval heads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headlab.base.errors import DataError
from headlab.base.json_text import to_json
from headlab.runs.files import write_atomically
from headlab.runs.maps import AttentionMap
from headlab.runs.readable_tokens import readable_tokens
from headlab.runs.tables import HEAD_INDEX


def to_bertviz(maps: Sequence[AttentionMap], text: int | None = None) -> dict[str, Any]:
    """Arguments of bertviz's `head_view` and `model_view`: arrays of (1, heads, query, key) for each stored layer.

    bertviz wants tensors: `{k: [torch.from_numpy(a) for a in v] if "attention" in k else v for k, v in ...}`.
    The keys are `attention` and `tokens` for one stack, `encoder_attention`, `decoder_attention`,
    `cross_attention`, `encoder_tokens` and `decoder_tokens` for two. Raises DataError where layers of one kind have
    different heads stored, which bertviz cannot show.
    """
    shown = _of_text(maps, text)
    kinds = list(dict.fromkeys(m.kind for m in shown))
    stacks = {kind: _layers([m for m in shown if m.kind == kind]) for kind in kinds}
    first = {kind: next(m for m in shown if m.kind == kind) for kind in kinds}
    if len(kinds) == 1 and kinds[0] != "cross":
        return {"attention": stacks[kinds[0]], "tokens": readable_tokens(first[kinds[0]].query_tokens)}
    found: dict[str, Any] = {f"{kind}_attention": stacks[kind] for kind in kinds}
    for kind, item in first.items():
        found["decoder_tokens" if kind != "encoder" else "encoder_tokens"] = readable_tokens(item.query_tokens)
        if kind == "cross":
            found["encoder_tokens"] = readable_tokens(item.key_tokens)
    return found


def to_circuitsvis(maps: Sequence[AttentionMap], text: int | None = None) -> dict[str, Any]:
    """Arguments of circuitsvis' `attention_heads`: `attention` (heads, query, key), `tokens`, `attention_head_names`.

    Raises DataError for maps whose queries and keys are different tokens, which circuitsvis cannot show.
    """
    from headlab.base.masks import head_names

    shown = _of_text(maps, text)
    if any(list(m.query_tokens) != list(shown[0].key_tokens) for m in shown):
        raise DataError("Queries and keys of these maps are not the same tokens.", "Take cross-attention out.")
    names = head_names([(m.kind, m.layer, m.head) for m in shown])
    attention = np.stack([np.asarray(m.weights, dtype=np.float32) for m in shown])
    return {"attention": attention, "tokens": readable_tokens(shown[0].query_tokens), "attention_head_names": names}


def _of_text(maps: Sequence[AttentionMap], text: int | None) -> list[AttentionMap]:
    shown = [m for m in maps if m.text == (maps[0].text if text is None else text)]
    if not shown:
        raise DataError(
            "There are no attention maps." if text is None else f"There is no map of text {text}.",
            "Store some: headlab dump --maps N.",
        )
    return shown


def _layers(maps: Sequence[AttentionMap]) -> list[np.ndarray]:
    by_layer: dict[int, dict[int, np.ndarray]] = {}
    for m in maps:
        by_layer.setdefault(m.layer, {})[m.head] = np.asarray(m.weights, dtype=np.float32)
    sets = {layer: sorted(heads) for layer, heads in by_layer.items()}
    if len({tuple(heads) for heads in sets.values()}) > 1:
        listed = "; ".join(f"layer {layer}: {', '.join(map(str, heads))}" for layer, heads in sorted(sets.items()))
        raise DataError(f"Layers have different heads stored ({listed}).", "Store the same heads of every layer.")
    return [np.stack([by_layer[layer][head] for head in sets[layer]])[None] for layer in sorted(by_layer)]


def write_duo(scores: pd.Series, path: str | Path) -> Path:
    """Write one number for each layer (row) and head (column) as the TSV of duo-attention; one kind of attention.

    duo-attention has one column for each key-value head: pass `by_kv_group(scores, heads)` for grouped-query models.
    Raises DataError for more than one kind and for layers with unlike numbers of heads.
    """
    if scores.index.get_level_values("kind").nunique() != 1:
        raise DataError("The TSV has no place for more than one kind of attention.", "Choose one kind first.")
    matrix = scores.droplevel("kind").unstack("head")
    if matrix.isna().to_numpy().any():
        raise DataError("A head has no score, or layers have unlike numbers of heads.", "Every cell needs a number.")
    rows = ["\t".join(repr(float(value)) for value in row) for row in matrix.sort_index().to_numpy()]
    return write_atomically(path, "\n".join(rows) + "\n")


def read_duo(path: str | Path, kind: str = "decoder") -> pd.Series:
    """Read the TSV of duo-attention (`full_attention_heads.tsv`): scores indexed by (kind, layer, head).

    A column is a key-value head; `from_kv_groups` gives its number to the query heads of the group. Raises DataError
    for a file that is no table of numbers.
    """
    try:
        matrix = np.loadtxt(path, dtype=float, delimiter="\t", ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no table of numbers: {error}", "Expected one line for each layer.") from error
    layers, heads = np.indices(matrix.shape).reshape(2, -1)
    index = pd.MultiIndex.from_arrays([[kind] * matrix.size, layers, heads], names=HEAD_INDEX)
    return pd.Series(matrix.ravel(), index=index, name="score_duo")


def by_kv_group(scores: pd.Series, heads: pd.DataFrame) -> pd.Series:
    """Mean score of the query heads that share keys and values, indexed by (kind, layer, head = group)."""
    groups = heads.loc[scores.index, "kv_group"].rename("head_")
    keys = [scores.index.get_level_values("kind"), scores.index.get_level_values("layer"), groups.to_numpy()]
    return scores.groupby(keys).mean().rename_axis(index=list(HEAD_INDEX))


def from_kv_groups(scores: pd.Series, heads: pd.DataFrame) -> pd.Series:
    """Scores of key-value heads, given to every query head of their group, indexed like the head table."""
    places = [(kind, layer, group) for (kind, layer, _), group in heads["kv_group"].items()]
    missing = [place for place in places if place not in scores.index]
    if missing:
        raise DataError(
            f"There is no score for {missing[0]} and {len(missing) - 1} others.",
            "The file is of a model with another shape.",
        )
    return pd.Series(scores.loc[places].to_numpy(), index=heads.index, name=scores.name)


def write_retrieval(scores: pd.Series | pd.DataFrame, path: str | Path) -> Path:
    """Write `{"layer-head": [scores]}`, the JSON of the retrieval-head repository; columns become the list."""
    table = scores.to_frame() if isinstance(scores, pd.Series) else scores
    if table.index.get_level_values("kind").nunique() != 1:
        raise DataError("The JSON has no place for more than one kind of attention.", "Choose one kind first.")
    found = {
        f"{layer}-{head}": [float(v) for v in row if not pd.isna(v)]
        for (_, layer, head), row in zip(table.index, table.to_numpy(), strict=True)
    }
    return write_atomically(path, to_json(found))


def read_retrieval(path: str | Path, kind: str = "decoder") -> pd.DataFrame:
    """Read the JSON of the retrieval-head repository: columns `score_retrieval` (the mean) and `n`, one row a head.

    Raises DataError for a file of another shape.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        rows = [
            (kind, *(int(part) for part in name.split("-")), np.mean(values) if values else np.nan, len(values))
            for name, values in found.items()
        ]
        table = pd.DataFrame(rows, columns=[*HEAD_INDEX, "score_retrieval", "n"])
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path} is no file of retrieval heads: {error}", 'Expected {"layer-head": [scores]}.'
        ) from error
    return table.set_index(list(HEAD_INDEX)).sort_index()
