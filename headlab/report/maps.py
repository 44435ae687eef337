"""Stored attention maps of a run: maps.safetensors (float16) and maps.json (whose heads, which tokens)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from headlab.errors import DataError
from headlab.tables import to_json, write_atomically


@dataclass(frozen=True)
class AttentionMap:
    """What one head did with one text: `weights` is (query, key); tokens as the tokenizer names them."""

    kind: str
    layer: int
    head: int
    text: int  # id of the text, the same for all maps of it
    weights: np.ndarray
    query_tokens: Sequence[str]
    key_tokens: Sequence[str]

    def __post_init__(self) -> None:
        tokens = (len(self.query_tokens), len(self.key_tokens))
        if self.weights.shape != tokens:
            raise DataError(f"A map of shape {self.weights.shape} does not fit (query, key) tokens {tokens}.",
                            "Cut padding off both sides.")  # fmt: skip


def save_maps(folder: str | Path, maps: Iterable[AttentionMap]) -> list[Path]:
    """Write maps into a run folder, both files atomically; returns their paths."""
    tensors, entries = {}, []
    for i, item in enumerate(maps):
        tensors[str(i)] = np.ascontiguousarray(item.weights, dtype=np.float16)
        entries.append({"tensor": str(i), "kind": item.kind, "layer": item.layer, "head": item.head, "text": item.text,
                        "query_tokens": list(item.query_tokens), "key_tokens": list(item.key_tokens)})  # fmt: skip
    folder = Path(folder)
    return [
        write_atomically(folder / "maps.safetensors", save(tensors)),
        write_atomically(folder / "maps.json", to_json({"schema": 1, "maps": entries})),
    ]


def load_maps(folder: str | Path) -> list[AttentionMap]:
    """The maps of a run, in the order they were stored, or none; raises DataError for damaged files."""
    listing, weights = Path(folder) / "maps.json", Path(folder) / "maps.safetensors"
    if not listing.is_file() or not weights.is_file():
        return []
    try:
        entries = json.loads(listing.read_text(encoding="utf-8"))["maps"]
        tensors = load_file(weights)
        return [AttentionMap(e["kind"], int(e["layer"]), int(e["head"]), int(e["text"]),
                             tensors[e["tensor"]].astype(np.float32), e["query_tokens"], e["key_tokens"])
                for e in entries]  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"The maps in {folder} cannot be read: {error}", "Write them again, or take maps.* away."
        ) from error
