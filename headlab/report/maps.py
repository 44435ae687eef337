"""Stored attention maps of a run: maps.safetensors (float16) and maps.json (whose heads, which tokens)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from headlab.errors import DataError
from headlab.tables import to_json, write_atomically

_SPECIAL = re.compile(r"^(\[[A-Z_0-9]+\]|</?(s|unk|pad|bos|eos|mask|sep|cls)>|<\|[^|]*\|>|<extra_id_\d+>)$")


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
    query_special: Sequence[bool] | None = None  # which tokens the tokenizer added; None = told by their look
    key_special: Sequence[bool] | None = None

    def __post_init__(self) -> None:
        tokens = (len(self.query_tokens), len(self.key_tokens))
        if self.weights.shape != tokens:
            raise DataError(f"A map of shape {self.weights.shape} does not fit (query, key) tokens {tokens}.",
                            "Cut padding off both sides.")  # fmt: skip
        for flags, count in zip((self.query_special, self.key_special), tokens, strict=True):
            if flags is not None and len(flags) != count:
                raise DataError(f"{len(flags)} flags of special tokens do not fit {count} tokens.",
                                "Give one flag for each token, or none.")  # fmt: skip

    def _repr_html_(self) -> str:
        from headlab.report.notebook import maps_html

        return maps_html([self])


def is_special(tokens: Iterable[str]) -> list[bool]:
    """Which tokens look like those that tokenizers add ([CLS], </s>, <|endoftext|>), for maps without flags."""
    return [bool(_SPECIAL.match(str(token))) for token in tokens]


def save_maps(folder: str | Path, maps: Iterable[AttentionMap]) -> list[Path]:
    """Write maps into a run folder, both files atomically; returns their paths."""
    tensors, entries = {}, []
    for i, item in enumerate(maps):
        tensors[str(i)] = np.ascontiguousarray(item.weights, dtype=np.float16)
        entries.append({"tensor": str(i), "kind": item.kind, "layer": item.layer, "head": item.head, "text": item.text,
                        "query_tokens": list(item.query_tokens), "key_tokens": list(item.key_tokens),
                        **_flags(item)})  # fmt: skip
    folder = Path(folder)
    return [
        write_atomically(folder / "maps.safetensors", save(tensors)),
        write_atomically(folder / "maps.json", to_json({"schema": 1, "maps": entries})),
    ]


def _flags(item: AttentionMap) -> dict[str, list[int]]:
    """Positions of special tokens, where they are known."""
    sides = {"query_special": item.query_special, "key_special": item.key_special}
    return {side: [i for i, flag in enumerate(flags) if flag] for side, flags in sides.items() if flags is not None}


def load_maps(folder: str | Path) -> list[AttentionMap]:
    """The maps of a run, in the order they were stored, or none; raises DataError for damaged files."""
    listing, weights = Path(folder) / "maps.json", Path(folder) / "maps.safetensors"
    if not listing.is_file() or not weights.is_file():
        return []
    try:
        entries = json.loads(listing.read_text(encoding="utf-8"))["maps"]
        tensors = load_file(weights)
        return [_read(entry, tensors[entry["tensor"]].astype(np.float32)) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"The maps in {folder} cannot be read: {error}", "Write them again, or take maps.* away."
        ) from error


def _read(entry: dict, weights: np.ndarray) -> AttentionMap:
    flags = {}
    for side in ("query", "key"):
        places = entry.get(f"{side}_special")
        tokens = entry[f"{side}_tokens"]
        flags[side] = None if places is None else [i in set(places) for i in range(len(tokens))]
    return AttentionMap(entry["kind"], int(entry["layer"]), int(entry["head"]), int(entry["text"]), weights,
                        entry["query_tokens"], entry["key_tokens"], flags["query"], flags["key"])  # fmt: skip
