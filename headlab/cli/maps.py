"""Attention maps of a few texts, for `headlab dump --maps`: maps.safetensors, and maps.json with the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headlab.attention.masks import HeadId
from headlab.errors import UsageError
from headlab.models.batch import Batch, Tokens
from headlab.tables import to_json, write_atomically

if TYPE_CHECKING:
    from headlab.attention.heads import Heads

MAX_BYTES = 4 << 30


@dataclass
class Maps:
    """Maps by (kind, layer), each (text, head, query, key) in float32, zero beyond a text's own length."""

    weights: dict[tuple[str, int], Tensor]
    heads: dict[tuple[str, int], list[int]]
    texts: list[dict[str, Any]]

    def first_text(self, kind: str, layer: int) -> tuple[Tensor, list[str], list[str]]:
        """Maps (head, query, key) of the first text without padding, the query tokens and the key tokens."""
        text = self.texts[0]
        queries = text["source"] if kind == "encoder" or text["target"] is None else text["target"]
        keys = queries if kind != "cross" else text["source"]
        return self.weights[kind, layer][0, :, : len(queries), : len(keys)], queries, keys


def capture(heads: Heads, batches: Sequence[Batch], n: int, layers: list[int] | None, chosen: list[HeadId] | None) -> Maps:
    """Maps of the first n rows by example id; UsageError for heads that do not exist and for more than 4 GiB of maps."""
    rows = sorted((example, b, r) for b, batch in enumerate(batches) for r, example in enumerate(batch.examples))[:n]
    singles = [_row(batches[b], r) for _, b, r in rows]
    _check_size(heads, singles, layers, chosen)
    parts: dict[tuple[str, int], list[Tensor]] = {}
    for single in singles:
        for (kind, layer), found in heads.capture(single, layers, chosen).items():
            queries, keys = _sides(kind, single)
            real = found[0].cpu()[:, queries.valid[0].cpu()][:, :, keys.valid[0].cpu()]
            parts.setdefault((kind, layer), []).append(real)
    tokenizer = heads.checkpoint.tokenizer if heads.checkpoint else None
    texts = [_text(single, example, tokenizer) for single, (example, _, _) in zip(singles, rows, strict=True)]
    return Maps({key: _stacked(found) for key, found in parts.items()}, _chosen(heads, layers, chosen), texts)


def save(maps: Maps, folder: Path) -> list[Path]:
    """Write maps.safetensors (one tensor `kind.layer` each) and maps.json beside it."""
    from safetensors.torch import save_file

    tensors = {f"{kind}.{layer}": weights.contiguous() for (kind, layer), weights in maps.weights.items()}
    described = {
        "shape": "(text, head, query, key)",
        "tensors": {f"{k}.{n}": {"kind": k, "layer": n, "heads": heads} for (k, n), heads in maps.heads.items()},
        "texts": maps.texts,
    }
    return [
        write_atomically(folder / "maps.safetensors", lambda path: save_file(tensors, path)),
        write_atomically(folder / "maps.json", to_json(described)),
    ]


def _row(batch: Batch, row: int) -> Batch:
    """One row of a batch as a batch."""
    size = len(batch)

    def cut(value: Any) -> Any:
        return value[row : row + 1] if isinstance(value, Tensor) and value.dim() and value.shape[0] == size else value

    def side(tokens: Tokens) -> Tokens:
        return Tokens(*(cut(t) for t in (tokens.ids, tokens.valid, tokens.special, tokens.separator)))

    inputs = {name: cut(value) for name, value in batch.inputs.items() if name != "labels"}
    return Batch(inputs, side(batch.source), side(batch.target) if batch.target else None, batch.examples[row : row + 1])


def _sides(kind: str, batch: Batch) -> tuple[Tokens, Tokens]:
    """Where a kind's queries and keys are."""
    queries = batch.source if kind == "encoder" or batch.target is None else batch.target
    return queries, batch.source if kind == "cross" else queries


def _text(batch: Batch, example: int, tokenizer: Any) -> dict[str, Any]:
    def words(tokens: Tokens) -> list[str]:
        ids = tokens.ids[0][tokens.valid[0]].tolist()
        return [str(i) for i in ids] if tokenizer is None else list(tokenizer.convert_ids_to_tokens(ids))

    return {"example": example, "source": words(batch.source), "target": words(batch.target) if batch.target else None}


def _stacked(parts: list[Tensor]) -> Tensor:
    height, width = max(p.shape[1] for p in parts), max(p.shape[2] for p in parts)
    whole = torch.zeros(len(parts), parts[0].shape[0], height, width)
    for row, part in zip(whole, parts, strict=True):
        row[:, : part.shape[1], : part.shape[2]] = part
    return whole


def _chosen(heads: Heads, layers: list[int] | None, chosen: list[HeadId] | None) -> dict[tuple[str, int], list[int]]:
    kept: dict[tuple[str, int], list[int]] = {}
    for kind, layer, head in chosen if chosen is not None else heads.index:
        if layers is None or layer in layers:
            kept.setdefault((kind, layer), []).append(head)
    return kept


def _check_size(heads: Heads, singles: list[Batch], layers: list[int] | None, chosen: list[HeadId] | None) -> None:
    count = sum(len(found) for found in _chosen(heads, layers, chosen).values())
    longest = max((max(side.ids.shape[1] for side in (s.source, s.target) if side is not None) for s in singles), default=0)
    size = 4 * len(singles) * count * longest**2
    if size > MAX_BYTES:
        raise UsageError(f"The maps of {count} heads on {len(singles)} texts of {longest} tokens take {size >> 30} GiB.",
                         "Choose fewer with --layers or --heads, or lower --maps or --max-length.")  # fmt: skip
