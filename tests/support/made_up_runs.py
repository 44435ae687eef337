"""Made-up runs of realistic size: an encoder (6 x 12), a decoder (30 x 9), a translator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headlab.runs.folder import save
from headlab.runs.maps import AttentionMap, save_maps
from headlab.runs.tables import HEAD_INDEX, SWEEP_COLUMNS

LABELS = {
    "previous_token": ("prev_mass", 0.5),
    "next_token": ("next_mass", 0.5),
    "self": ("self_mass", 0.5),
    "positional": ("max_weight", 0.55),
    "separator": ("separator_mass", 0.6),
    "broad": ("entropy_norm", 0.8),
    "sink": ("first_mass", 0.5),
}
SENTENCE = ["[CLS]", "the", "old", "gardener", "un", "##tie", "##d", "his", "boots", "by", "the", "door", ".", "[SEP]"]
BYTE_LEVEL = ["The", "Ġcaf", "Ã©", "Ġclosed", "Ġearly", ",", "Ġso", "Ġwe", "Ġwalked", "Ċ", "Ġhome", "."]


def make_heads(
    sizes: dict[str, tuple[int, int]], *, separator: bool = True, group: int = 1, seed: int = 0
) -> pd.DataFrame:
    """A head table of the contract for {kind: (layers, heads)}, with scores gradient and ablation."""
    rng = np.random.default_rng(seed)
    rows = [
        (kind, layer, head)
        for kind, (layers, heads) in sizes.items()
        for layer in range(layers)
        for head in range(heads)
    ]
    n = len(rows)
    table = pd.DataFrame(index=pd.MultiIndex.from_tuples(rows, names=HEAD_INDEX))
    table["kv_group"] = [head // group for _, _, head in rows]
    table["n_queries"] = 8120
    table["entropy"] = rng.gamma(3, 0.6, n)
    table["entropy_norm"] = np.clip(rng.beta(3, 2, n), 0, 1)
    for column in ("max_weight", "first_mass", "separator_mass", "self_mass", "prev_mass", "next_mass"):
        table[column] = rng.beta(0.6, 2.6, n)
    if not separator:
        table["separator_mass"] = np.nan
    table["distance"] = rng.gamma(4, 2.0, n)
    table["output_norm"] = rng.gamma(4, 0.3, n)
    for name, (column, threshold) in LABELS.items():
        score = table[column]
        table[name] = (score > threshold).astype("boolean").where(score.notna(), pd.NA)
        table[f"{name}_score"], table[f"{name}_null"], table[f"{name}_n"] = score, 0.12, 8000
        table[f"{name}_threshold"] = threshold
        table[f"{name}_low"], table[f"{name}_high"] = score - 0.02, score + 0.02
        table[f"{name}_q"] = np.where(score > threshold, 0.001, 0.6)
    carried = table[list(LABELS)].fillna(False).astype(bool)
    table["labels"] = [",".join(carried.columns[row]) or "none" for row in carried.to_numpy()]
    table["score_gradient"] = rng.gamma(1.2, 0.004, n)
    table["score_ablation"] = rng.normal(0.001, 0.004, n)
    return table


def make_sweep(n_heads: int, metrics: dict[str, float], *, kinds: str = "encoder", seeds: int = 3) -> pd.DataFrame:
    """A sweep of the contract: gradient, ablation and random orders; {metric: baseline}, perplexity rises."""
    rng = np.random.default_rng(1)
    rows = []
    for budget in range(0, 100, 10):
        removed = round(n_heads * budget / 100)
        for strategy, harm in (
            ("gradient", 0.25),
            ("ablation", 0.32),
            *(("random", 0.5 + 0.06 * s) for s in range(seeds)),
        ):
            seed = int(round((harm - 0.5) / 0.06)) if strategy == "random" else 0
            for metric, baseline in metrics.items():
                damage = harm * (budget / 100) ** 1.6 * (1 + 0.1 * rng.normal() * (budget > 0))
                drop = baseline * (np.expm1(6 * damage) if metric == "perplexity" else damage)
                value = baseline + drop if metric == "perplexity" else baseline - drop
                width = 0.04 * baseline * (budget > 0) * (1 + 20 * damage if metric == "perplexity" else 1)
                rows.append(
                    (
                        strategy,
                        "zero",
                        seed,
                        kinds,
                        f"{budget}%" if budget else "0",
                        removed,
                        n_heads,
                        metric,
                        value,
                        baseline,
                        drop,
                        drop - width,
                        drop + width,
                        160,
                        "report",
                        0.41,
                        f"key{removed}",
                    )
                )
    return pd.DataFrame(rows, columns=[*SWEEP_COLUMNS, "run"])


def make_maps(
    tokens: Sequence[str],
    heads: Sequence[tuple[str, int, int]],
    *,
    keys: Sequence[str] | None = None,
    causal: bool = False,
) -> list[AttentionMap]:
    """Maps of several shapes: previous token, first token, diagonal, broad."""
    keys = tokens if keys is None else keys
    maps = []
    for i, (kind, layer, head) in enumerate(heads):
        scores = np.random.default_rng(i).normal(size=(len(tokens), len(keys)))
        rows, columns = np.indices(scores.shape)
        target = [columns == rows - 1, columns == 0, columns == rows, np.zeros_like(rows, dtype=bool)][i % 4]
        scores = np.where(target, scores + 5, scores)
        scores = np.where(columns > rows, -np.inf, scores) if causal else scores
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        maps.append(AttentionMap(kind, layer, head, 0, weights / weights.sum(axis=1, keepdims=True), tokens, keys))
    return maps


def signature(model: str, task: str) -> dict:
    return {
        "model": {
            "name": model,
            "revision": "c0ffee123456",
            "class": "BertModel",
            "dtype": "float32",
            "adds": {"cls": True, "sep": True},
        },
        "task": task,
        "n": 320,
        "seed": 0,
        "split": "50:50",
        "data": {"name": "demo sentences", "sha256": "ab" * 32},
        "versions": {"headlab": "0.1.0", "transformers": "5.24.0", "torch": "2.13.0"},
    }


def write(
    folder: Path,
    *,
    maps: list[AttentionMap] | None = None,
    model: str = "demo:minilm",
    task: str = "probe",
    command: str = "headlab sweep demo:minilm --task probe --out runs/minilm",
    **tables: Any,
) -> Path:
    """Write a run folder with tables heads= and sweep=, maps and a signature."""
    save(folder, meta=signature(model, task), command=command, **tables)
    if maps:
        save_maps(folder, maps)
    return folder
