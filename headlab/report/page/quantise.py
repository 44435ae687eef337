"""Attention maps as short text for a page: 8 or 16 bits a weight, the smallest weights left out, compressed."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

FINE_WEIGHTS = 400_000  # so many weights of a page, those of its smallest maps, get 16 bits each; the others 8
BUDGET = 6_000_000  # characters that all maps of a page may take
FLOOR = 1e-3  # weights below are left out, or below a tenth of the uniform weight where that is less


@dataclass(frozen=True)
class PackedMap:
    """One map: `data` is base64 of the deflated roots of the weights; weights below `floor` read 0."""

    shape: tuple[int, int]  # (query, key)
    bits: int
    floor: float
    data: str


def floor_of(n_keys: int) -> float:
    """The least weight that is kept of a map with so many keys."""
    return min(FLOOR, 0.1 / max(n_keys, 1))


def pack(weights: np.ndarray, bits: int = 8) -> PackedMap:
    """Pack one map of weights between 0 and 1, shape (query, key).

    Roots are stored, so that small weights keep their digits: 8 bits are exact to 0.004 near 1 and to 0.0004 near
    0.01, 16 bits to 0.00002. Of 16 bits, all high bytes come first, which compress well.
    """
    floor = floor_of(weights.shape[1])
    kept = np.clip(np.nan_to_num(np.asarray(weights, dtype=np.float64)), 0.0, 1.0)
    roots = np.rint(np.sqrt(np.where(kept < floor, 0.0, kept)) * (2**bits - 1))
    if bits == 8:
        raw = roots.astype(np.uint8).tobytes()
    else:
        whole = roots.astype(np.uint16)
        raw = (whole >> 8).astype(np.uint8).tobytes() + (whole & 255).astype(np.uint8).tobytes()
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)  # no header: what browsers call deflate-raw
    data = base64.b64encode(packer.compress(raw) + packer.flush()).decode("ascii")
    return PackedMap((weights.shape[0], weights.shape[1]), bits, floor, data)


def unpack(packed: PackedMap) -> np.ndarray:
    """The weights of a packed map, as the page reads them: float32, shape (query, key)."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed.data), -15), dtype=np.uint8)
    if packed.bits == 16:
        high, low = raw.reshape(2, -1).astype(np.uint16)
        raw = (high << 8) | low
    return ((raw.astype(np.float64) / (2**packed.bits - 1)) ** 2).reshape(packed.shape).astype(np.float32)


def pack_all(maps: Iterable[np.ndarray], budget: int = BUDGET) -> tuple[list[PackedMap], int]:
    """Pack maps in the order they come until the budget is spent; returns them and the characters they take."""
    maps = list(maps)
    fine = _fine_size([weights.size for weights in maps])
    packed: list[PackedMap] = []
    spent = 0
    for weights in maps:
        item = pack(weights, 16 if weights.size <= fine else 8)
        spent += len(item.data)
        if spent > budget:
            return packed, spent - len(item.data)
        packed.append(item)
    return packed, spent


def _fine_size(sizes: list[int]) -> int:
    """Maps up to this size get 16 bits: the greatest size for which all maps up to it are few enough together."""
    total, fine = 0, 0
    for size in sorted(set(sizes)):
        total += size * sizes.count(size)
        if total > FINE_WEIGHTS:
            break
        fine = size
    return fine
