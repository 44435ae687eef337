"""The statistics of a head: pure functions of blocks of attention, a value per query, then sums over queries.

Definitions (i a query, j a key, a_ij its attention; sums over visible keys):
entropy -sum a ln a; entropy_norm entropy / ln(visible keys); max_weight max_j a_ij; first_mass a on the first token;
separator_mass a on separators; self/prev/next_mass a_i,i / a_i,i-1 / a_i,i+1; distance sum a_ij |i - j|;
sink_logit_mass 1 - sum a (what a learned sink logit takes).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as functional
from torch import Tensor

from headlab.attention.geometry import Geometry
from headlab.attention.streaming import Block

MAX_OFFSET = 32  # offsets -32..32 are searched for positional heads
OFFSET_STATISTICS = {"prev_mass": -1, "self_mass": 0, "next_mass": 1}
ROW_STATISTICS = (
    "entropy", "entropy_norm", "max_weight", "first_mass", "separator_mass",
    "self_mass", "prev_mass", "next_mass", "distance", "sink_logit_mass",
)  # fmt: skip
STATISTICS = (*ROW_STATISTICS, "output_norm")


@dataclass
class TextSums:
    """Sums over the queries of each text of a batch.

    `value` (batch, head, item), `count` and `chance` (batch, item): number of queries that count, and the sum of what
    a uniform head would score on them (NaN where chance means nothing). Items are statistics or offsets.
    """

    value: Tensor
    count: Tensor
    chance: Tensor


@dataclass
class LayerReader:
    """Reads the blocks of one attention call; `rows` holds (statistic, batch, head, query), never query x key."""

    geometry: Geometry
    n_heads: int
    offsets: bool = False  # also the mass at every offset up to MAX_OFFSET
    rows: Tensor = field(init=False)
    offset_mass: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        batch, queries = self.geometry.query_valid.shape
        shape = (len(ROW_STATISTICS), batch, self.n_heads, queries)
        self.rows = torch.zeros(shape, device=self.geometry.device)
        if self.offsets and self.geometry.self_attention:
            self.offset_mass = torch.zeros(batch, self.n_heads, 2 * MAX_OFFSET + 1, device=self.geometry.device)

    def read(self, block: Block) -> None:
        """Fill in the values of the block's queries."""
        here = slice(block.start, block.stop)
        geometry, total = self.geometry, block.total
        values = dict(zip(ROW_STATISTICS, self.rows, strict=True))
        values["entropy"][:, :, here] = block.entropy
        # ln(visible) is 0 for a query with one visible key; such queries do not count in entropy_norm
        width = geometry.visible[:, None, here].clamp_min(2).log()
        values["entropy_norm"][:, :, here] = block.entropy / width
        values["max_weight"][:, :, here] = block.weights.amax(-1) / total
        index = geometry.first_key.clamp_max(block.weights.shape[-1] - 1)
        first = block.weights[torch.arange(len(index), device=index.device), ..., index]
        values["first_mass"][:, :, here] = first / total
        if bool(geometry.has_separator.any()):
            keys = geometry.separator[:, : block.weights.shape[-1]].float()
            values["separator_mass"][:, :, here] = _mass_on(block.weights, keys) / total
        values["sink_logit_mass"][:, :, here] = 1 - block.key_total / total
        if geometry.self_attention:
            values["distance"][:, :, here] = _distance(block, geometry.causal) / total
            self._read_offsets(block, values)

    def _read_offsets(self, block: Block, values: dict[str, Tensor]) -> None:
        here = slice(block.start, block.stop)
        reach = MAX_OFFSET if self.offset_mass is not None else 1
        near = near_diagonal(block, reach) / block.total.unsqueeze(-1)
        for name, offset in OFFSET_STATISTICS.items():
            values[name][:, :, here] = near[..., reach + offset]
        if self.offset_mass is not None:
            real = self.geometry.query_valid[:, None, here, None]
            self.offset_mass += (near * real).sum(2)

    def sums(self) -> TextSums:
        """Row statistics summed over each text's queries; items are (statistic, all queries | word queries)."""
        counted, chance = _counted(self.geometry)
        return sum_rows(self.rows, counted, chance)

    def offset_sums(self) -> TextSums | None:
        """Mass at each offset summed over each text's queries; None where offsets were not asked for."""
        if self.offset_mass is None:
            return None
        count, chance = _offset_counts(self.geometry)
        return TextSums(self.offset_mass, count, chance)


def sum_rows(rows: Tensor, counted: Tensor, chance: Tensor) -> TextSums:
    """Sum rows (item, batch, head, query) over queries with 0/1 weights (item, 2, batch, query); items are doubled."""
    value = torch.einsum("kbhq,kwbq->bhkw", rows.double(), counted.double()).flatten(2)
    count = counted.sum(-1).permute(2, 0, 1).flatten(1)
    expected = torch.einsum("kbq,kwbq->bkw", chance.double(), counted.double()).flatten(1)
    return TextSums(value, count, expected)


def _mass_on(weights: Tensor, keys: Tensor) -> Tensor:
    """Weight on a set of keys (batch, key); (batch, head, query)."""
    batch, heads, queries, n_keys = weights.shape
    flat = torch.matmul(weights.reshape(batch, heads * queries, n_keys), keys.unsqueeze(-1))
    return flat.view(batch, heads, queries)


def _distance(block: Block, causal: bool) -> Tensor:
    """sum_j w_ij |i - j|, (batch, head, query)."""
    n_keys = block.weights.shape[-1]
    device = block.weights.device
    query = torch.arange(block.start, block.stop, device=device, dtype=torch.float32)
    key = torch.arange(n_keys, device=device, dtype=torch.float32)
    if causal:  # i - j is linear in j: one product with a vector, counted from the block so that numbers stay small
        batch = block.weights.shape[0]
        from_start = _mass_on(block.weights, (block.start - key).expand(batch, -1))
        return from_start + (query - block.start) * block.key_total
    gap = (query[:, None] - key).abs()
    return torch.einsum("bhqk,qk->bhq", block.weights, gap)


def near_diagonal(block: Block, reach: int) -> Tensor:
    """Weights at offsets -reach..reach from each query, 0 beyond the text: (batch, head, query, 2 reach + 1)."""
    weights, start = block.weights, block.start
    rows = block.stop - block.start
    left = max(0, reach - start)
    right = max(0, block.stop + reach - weights.shape[-1])
    if left or right:
        weights = functional.pad(weights, (left, right))
    elif not weights.is_contiguous():
        weights = weights.contiguous()
    batch, heads, _, _ = weights.shape
    s0, s1, s2, s3 = weights.stride()
    # Moving down one row and right one column is one stride: a view in which the diagonals are columns.
    return weights.as_strided(
        (batch, heads, rows, 2 * reach + 1),
        (s0, s1, s2 + s3, s3),
        weights.storage_offset() + (start - reach + left) * s3,
    )


def _counted(geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Which queries count for which statistic, (statistic, 2, batch, query), and the chance level of each."""
    if "rows" in geometry.shared:
        return geometry.shared["rows"]
    valid, visible = geometry.query_valid, geometry.visible
    everything = dict.fromkeys(ROW_STATISTICS, valid)
    everything["entropy_norm"] = valid & (visible > 1)
    everything["separator_mass"] = valid & geometry.has_separator[:, None]
    nothing = torch.zeros_like(valid)
    for name, offset in OFFSET_STATISTICS.items():
        everything[name] = valid & geometry.sees_offset(offset) if geometry.self_attention else nothing
    if not geometry.self_attention:
        everything["distance"] = nothing  # positions in two texts have no distance
    rows = torch.stack([everything[name] for name in ROW_STATISTICS])
    counted = torch.stack([rows, rows & geometry.query_is_word], 1)
    chance = torch.stack([_chance(geometry, name) for name in ROW_STATISTICS])
    geometry.shared["rows"] = counted, chance
    return counted, chance


def _chance(geometry: Geometry, name: str) -> Tensor:
    """What a uniform head scores at each query, (batch, query); NaN where there is no such thing."""
    if name == "entropy_norm":
        return torch.ones_like(geometry.visible)
    if name == "first_mass":
        first = functional.one_hot(geometry.first_key, geometry.n_keys).bool()
        return geometry.chance_of(geometry.visible_among(first))
    if name == "separator_mass":
        return geometry.chance_of(geometry.visible_among(geometry.separator))
    if name in OFFSET_STATISTICS:
        return geometry.chance_of(torch.ones_like(geometry.visible))
    return torch.full_like(geometry.visible, float("nan"))


def _offset_counts(geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Queries that see each offset, (batch, offset), and the sum of a uniform head's mass there."""
    if "offsets" in geometry.shared:
        return geometry.shared["offsets"]
    uniform = geometry.chance_of(torch.ones_like(geometry.visible)).double()
    counts, chances = [], []
    for offset in range(-MAX_OFFSET, MAX_OFFSET + 1):
        counted = geometry.query_valid & geometry.sees_offset(offset)
        counts.append(counted.sum(-1))
        chances.append((uniform * counted).sum(-1))
    geometry.shared["offsets"] = torch.stack(counts, -1), torch.stack(chances, -1)
    return geometry.shared["offsets"]
