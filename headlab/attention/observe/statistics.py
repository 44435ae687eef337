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

from headlab.attention.observe.geometry import Geometry
from headlab.attention.reach.blocks import Block

MAX_OFFSET = 32  # offsets -32..32 are searched for positional heads
OFFSET_STATISTICS = {"prev_mass": -1, "self_mass": 0, "next_mass": 1}
ROW_STATISTICS = (
    "entropy",
    "entropy_norm",
    "max_weight",
    "first_mass",
    "separator_mass",
    "self_mass",
    "prev_mass",
    "next_mass",
    "distance",
    "sink_logit_mass",
)
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
    """Reads the blocks of one attention call; keeps values per query, never query x key.

    `raw` holds (statistic, batch, head, query): sums over keys of weights that are not yet divided by their total.
    """

    geometry: Geometry
    n_heads: int
    offsets: bool = False  # also the mass at every offset up to MAX_OFFSET
    raw: Tensor = field(init=False)
    totals: Tensor = field(init=False)  # (2, batch, head, query): with and without a sink logit
    offset_mass: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        geometry = self.geometry
        batch, queries = geometry.query_valid.shape
        self.raw = torch.zeros(len(ROW_STATISTICS), batch, self.n_heads, queries, device=geometry.device)
        self.totals = torch.ones(2, batch, self.n_heads, queries, device=geometry.device)
        self._named = dict(zip(ROW_STATISTICS, self.raw, strict=True))
        self._separators = geometry.separator.float() if bool(geometry.has_separator.any()) else None
        if self.offsets and geometry.self_attention:
            self.offset_mass = torch.zeros(batch, self.n_heads, 2 * MAX_OFFSET + 1, device=geometry.device)

    def read(self, block: Block) -> None:
        """Note the sums of the block's queries."""
        queries = block.rows
        named, n_keys = self._named, block.weights.shape[-1]
        self.totals[0, :, :, queries] = block.total
        self.totals[1, :, :, queries] = block.key_total
        named["entropy"][:, :, queries] = block.log_moment
        named["max_weight"][:, :, queries] = block.peak
        first = self.geometry.first_key.clamp_max(n_keys - 1).view(-1, 1, 1, 1)
        shape = (*block.weights.shape[:3], 1)
        named["first_mass"][:, :, queries] = block.weights.gather(-1, first.expand(shape)).squeeze(-1)
        if self._separators is not None:
            named["separator_mass"][:, :, queries] = _mass_on(block.weights, self._separators[:, :n_keys])
        if self.geometry.self_attention:
            named["distance"][:, :, queries] = _distance(block, self.geometry.causal)
            self._read_offsets(block)

    def _read_offsets(self, block: Block) -> None:
        queries = block.rows
        reach = MAX_OFFSET if self.offset_mass is not None else 1
        near = near_diagonal(block, reach, self.geometry.causal)
        for name, offset in OFFSET_STATISTICS.items():
            self._named[name][:, :, queries] = near[..., reach + offset]
        if self.offset_mass is not None:
            share = self.geometry.query_valid[:, None, queries] / block.total
            self.offset_mass += torch.einsum("bhqo,bhq->bho", near, share)

    def rows(self) -> Tensor:
        """The statistics of every query, (statistic, batch, head, query)."""
        total, key_total = self.totals
        rows = self.raw / total
        named = dict(zip(ROW_STATISTICS, rows, strict=True))
        # A query that looks at nothing at all (every weight zeroed after softmax) has entropy 0.
        looks = key_total > 0
        safe = torch.where(looks, key_total, 1)
        named["entropy"].copy_(torch.where(looks, safe.log() - self._named["entropy"] / safe, 0))
        # ln(visible) is 0 for a query with one visible key; such queries do not count in entropy_norm
        named["entropy_norm"].copy_(named["entropy"] / self.geometry.visible[:, None].clamp_min(2).log())
        named["sink_logit_mass"].copy_(1 - key_total / total)
        return rows

    def sums(self) -> TextSums:
        """Row statistics summed over each text's queries; items are (statistic, all queries | word queries)."""
        counted, chance = _counted(self.geometry)
        return sum_rows(self.rows(), counted, chance)

    def offset_sums(self) -> TextSums | None:
        """Mass at each offset summed over each text's queries; None where offsets were not asked for."""
        if self.offset_mass is None:
            return None
        count, chance = offset_counts(self.geometry)
        return TextSums(self.offset_mass, count, chance)


def sum_rows(rows: Tensor, counted: Tensor, chance: Tensor) -> TextSums:
    """Sum rows (item, batch, head, query) over queries with 0/1 weights (item, 2, batch, query); items are doubled."""
    # 0 x NaN is NaN: what a padded query holds must not be multiplied away but replaced
    rows = torch.where(counted.any(1).unsqueeze(2), rows, 0)
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


def near_diagonal(block: Block, reach: int, causal: bool) -> Tensor:
    """Weights at offsets -reach..reach from each query, 0 beyond the text: (batch, head, query, 2 reach + 1)."""
    weights, start = block.weights, block.start
    ahead = 0 if causal else reach  # a causal block ends at its last query: nothing lies ahead
    left = max(0, reach - start)
    right = max(0, block.stop + ahead - weights.shape[-1])
    if left or right:
        weights = functional.pad(weights, (left, right))
    elif not weights.is_contiguous():
        weights = weights.contiguous()
    batch, heads, rows, _ = weights.shape
    s0, s1, s2, s3 = weights.stride()
    first = weights.storage_offset() + (start - reach + left) * s3
    # Moving down one row and right one column is one stride: a view in which the diagonals are columns.
    near = weights.as_strided((batch, heads, rows, reach + ahead + 1), (s0, s1, s2 + s3, s3), first)
    return functional.pad(near, (0, reach)) if causal else near


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


def offset_counts(geometry: Geometry, queries: str = "query_valid") -> tuple[Tensor, Tensor]:
    """Queries that see each offset, (batch, offset), and the sum of a uniform head's mass there."""
    if ("offsets", queries) in geometry.shared:
        return geometry.shared["offsets", queries]
    uniform = geometry.chance_of(torch.ones_like(geometry.visible)).double()
    counts, chances = [], []
    for offset in range(-MAX_OFFSET, MAX_OFFSET + 1):
        counted = getattr(geometry, queries) & geometry.sees_offset(offset)
        counts.append(counted.sum(-1))
        chances.append((uniform * counted).sum(-1))
    geometry.shared["offsets", queries] = torch.stack(counts, -1), torch.stack(chances, -1)
    return geometry.shared["offsets", queries]
