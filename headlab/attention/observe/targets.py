"""What heads have on the targets of labels: mean attention there, or how often the largest weight is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor

from headlab.attention.observe.geometry import Geometry
from headlab.attention.observe.statistics import MAX_OFFSET, TextSums, offset_counts, sum_rows
from headlab.attention.reach.blocks import Block
from headlab.attention.reach.call import by_query_head
from headlab.labels import KeyClass, Label, OneKey, Scene

ROWS = 64  # queries at a time when targets are counted
DENSE = 0.05  # share of pairs that are targets, from which multiplying beats picking
# A largest weight that is not above an even share by this much is a tie, and points nowhere.
DISTINCT = 1.001
WORDS = ("special",)  # what is left out before the arg max where only words count


@dataclass(frozen=True)
class Plan:
    """Targets of one batch as its layers share them.

    `counted` and `chance` are (label, batch, query): queries that see a target, and a uniform head's score on them.
    `classes` (batch, key, label) are the key classes among them, `single` (batch, query, label) the single keys.
    """

    counted: Tensor
    chance: Tensor
    classes: Tensor
    single: Tensor
    allowed: dict[tuple[str, ...], Tensor]  # by what is left out before the arg max: (batch, key)
    contributing: Tensor  # (batch, key, 1 + label with keys): all keys, then each class
    contributes: Tensor  # (label with keys, batch, query): queries that see the class


def plan_of(geometry: Geometry, scene: Scene, labels: Sequence[Label], contributions: Sequence[Label]) -> Plan:
    """The plan for a batch; what it computes of size rows x keys is dropped again, 64 rows at a time."""
    counts = [_counts(geometry, scene, label) for label in labels]
    nothing = torch.zeros(0, *geometry.query_valid.shape, device=geometry.device)
    masses = [label for label in labels if label.reading == "mass"]
    classes = [label.target.keys(scene).float() for label in masses if isinstance(label.target, KeyClass)]
    single = [label.target.key(scene) for label in masses if isinstance(label.target, OneKey)]
    of_labels = [label.keys.keys(scene) for label in contributions if label.keys is not None]
    every = torch.ones_like(scene.keys.valid).float()
    sees = [geometry.query_valid & (geometry.visible_among(keys) > 0) for keys in of_labels]
    return Plan(
        counted=torch.stack([counted for counted, _ in counts]) if counts else nothing.bool(),
        chance=torch.stack([chance for _, chance in counts]) if counts else nothing,
        classes=torch.stack(classes, -1) if classes else every[..., None][..., :0],
        single=torch.stack(single, -1) if single else torch.zeros(*geometry.query_valid.shape, 0, dtype=torch.long),
        allowed={exclude: _allowed(scene, exclude) for exclude in {WORDS, *(label.exclude for label in labels)}},
        contributing=torch.stack([every, *(keys.float() for keys in of_labels)], -1),
        contributes=torch.stack(sees) if sees else nothing.bool(),
    )


def _allowed(scene: Scene, exclude: tuple[str, ...]) -> Tensor:
    keys = scene.keys
    return keys.valid & ~(keys.special | keys.separator) if "special" in exclude else keys.valid


def _counts(geometry: Geometry, scene: Scene, label: Label) -> tuple[Tensor, Tensor]:
    """Queries that count, bool (batch, query), and what a uniform head scores at each."""
    assert label.target is not None
    on_target, choices = [], []
    keys = _allowed(scene, label.exclude)[:, None] if label.reading == "argmax" else None
    for start in range(0, geometry.n_queries, ROWS):
        rows = slice(start, min(start + ROWS, geometry.n_queries))
        visible = geometry.visible_block(rows)
        visible = visible if keys is None else visible & keys
        on_target.append((visible & label.target.block(scene, rows)[..., : geometry.n_keys]).sum(-1))
        choices.append(visible.sum(-1).expand_as(on_target[-1]))
    hits, among = torch.cat(on_target, -1).float(), torch.cat(choices, -1).float()
    counted = geometry.query_valid & (hits > 0)
    if label.reading == "argmax":
        counted &= geometry.query_is_word if "special" in label.exclude else geometry.query_valid
    return counted, hits / among.clamp_min(1)


class TargetReader:
    """Reads the blocks of one attention call for labels with a target, and for their shares of the contributions.

    `norms` (batch, head, key) are the lengths of the transformed values; None where they cannot be had.
    """

    def __init__(
        self,
        geometry: Geometry,
        scene: Scene,
        labels: Sequence[Label],
        plan: Plan,
        n_heads: int,
        *,
        norms: Tensor | None = None,
        offset_hits: bool = False,
    ) -> None:
        self.geometry, self.scene, self.labels, self.plan = geometry, scene, list(labels), plan
        batch, queries = geometry.query_valid.shape
        self.rows = torch.zeros(len(self.labels), batch, n_heads, queries, device=geometry.device)
        n_shares = plan.contributing.shape[-1] - 1 if norms is not None else 0
        self.shares = torch.zeros(n_shares, batch, n_heads, queries, device=geometry.device)
        self.norms = norms if n_shares else None
        self.hits = torch.zeros(batch, n_heads, 2 * MAX_OFFSET + 1, device=geometry.device) if offset_hits else None
        self.excluded = torch.zeros(1, batch, n_heads, queries, device=geometry.device)
        self.points = offset_hits or any(label.reading == "argmax" for label in self.labels)
        self._places = {kind: [i for i, label in enumerate(self.labels) if _reads(label) == kind] for kind in KINDS}

    def read(self, block: Block) -> None:
        """Note what the block's queries have on each target."""
        n_keys, queries = block.weights.shape[-1], block.rows
        if self._places["class"]:
            mass = _on_columns(block.weights, self.plan.classes[:, :n_keys])
            self.rows[self._places["class"], :, :, queries] = (mass / block.total.unsqueeze(-1)).movedim(-1, 0)
        if self._places["single"]:
            mass = _on_single(block.weights, self.plan.single[:, queries])
            self.rows[self._places["single"], :, :, queries] = (mass / block.total.unsqueeze(-1)).movedim(-1, 0)
        for place in self._places["pairs"]:
            pairs = self._target(place, queries, n_keys)
            self.rows[place, :, :, queries] = mass_on_pairs(block.weights, pairs) / block.total
        self._read_largest(block)
        if self.norms is not None:
            columns = self.norms[:, :, :n_keys, None] * self.plan.contributing[:, None, :n_keys]
            contributed = torch.matmul(block.weights, columns)  # (batch, head, query, 1 + class)
            self.shares[:, :, :, queries] = (contributed[..., 1:] / contributed[..., :1].clamp_min(1e-30)).movedim(
                -1, 0
            )

    def _target(self, place: int, queries: slice, n_keys: int) -> Tensor:
        target = self.labels[place].target
        assert target is not None
        return target.block(self.scene, queries)[..., :n_keys]

    def _read_largest(self, block: Block) -> None:
        n_keys, queries = block.weights.shape[-1], block.rows
        largest: dict[tuple[str, ...], Tensor] = {}
        for place in self._places["argmax"]:
            label = self.labels[place]
            if label.exclude not in largest:
                largest[label.exclude] = self._largest(block, self.plan.allowed[label.exclude][:, :n_keys])
            top = largest[label.exclude]
            target = self._target(place, queries, n_keys)
            target = target.expand(-1, top.shape[2], -1)[:, None].expand(-1, top.shape[1], -1, -1)
            hit = target.gather(-1, top.clamp_min(0).unsqueeze(-1)).squeeze(-1) & (top >= 0)
            self.rows[place, :, :, queries] = hit.float()
        allowed = self.plan.allowed[WORDS][:, :n_keys]
        if self.points and not bool(allowed.all()):
            left_out = _on_columns(block.weights, (~allowed).float().unsqueeze(-1)).squeeze(-1)
            self.excluded[0, :, :, queries] = left_out / block.total
        if self.hits is not None:
            top = largest.get(WORDS)
            self._note_offsets(block, self._largest(block, allowed) if top is None else top)

    def _largest(self, block: Block, allowed: Tensor) -> Tensor:
        """Index of each query's largest weight among the allowed keys, -1 where all are alike; (batch, head, query)."""
        weights = block.weights if bool(allowed.all()) else block.weights * allowed[:, None, None]
        peak, top = weights.max(-1)
        visible = self.geometry.visible_block(block.rows)[..., : weights.shape[-1]]
        choices = (visible & allowed[:, None]).sum(-1)[:, None]
        alike = (choices > 1) & (peak * choices <= DISTINCT * weights.sum(-1))
        return top.masked_fill(alike | (peak <= 0), -1)

    def _note_offsets(self, block: Block, top: Tensor) -> None:
        assert self.hits is not None
        query = torch.arange(block.start, block.stop, device=top.device)
        offset = top - query
        near = (top >= 0) & (offset.abs() <= MAX_OFFSET) & self.geometry.query_is_word[:, None, block.rows]
        self.hits.scatter_add_(-1, (offset + MAX_OFFSET).clamp(0, 2 * MAX_OFFSET), near.float())

    def sums(self) -> TextSums:
        """Items are labels: what each has on its target, over the queries that see one."""
        return sum_rows(self.rows, self.plan.counted.unsqueeze(1), self.plan.chance)

    def excluded_sums(self) -> TextSums | None:
        """Attention of words to special tokens, which the arg max leaves out; None where no label takes one."""
        if not self.points:
            return None
        words = self.geometry.query_is_word
        return sum_rows(self.excluded, words[None, None], torch.zeros(1, *words.shape, device=words.device))

    def share_sums(self) -> TextSums | None:
        """Items are labels with key classes: their share of each query's contributions; None where unknown."""
        if self.norms is None:
            return None
        sees = self.plan.contributes
        return sum_rows(self.shares, sees.unsqueeze(1), torch.full(sees.shape, float("nan"), device=sees.device))

    def offset_hit_sums(self) -> TextSums | None:
        """How often each word's largest weight is at each offset; None where that was not asked for."""
        if self.hits is None:
            return None
        return TextSums(self.hits, *offset_counts(self.geometry, "query_is_word"))


KINDS = ("class", "single", "pairs", "argmax")


def _reads(label: Label) -> str:
    if label.reading == "argmax":
        return "argmax"
    return {KeyClass: "class", OneKey: "single"}.get(type(label.target), "pairs")  # type: ignore[arg-type]


def _on_columns(weights: Tensor, columns: Tensor) -> Tensor:
    """Weight on key classes (batch, key, class); (batch, head, query, class)."""
    batch, heads, queries, n_keys = weights.shape
    return torch.bmm(weights.reshape(batch, heads * queries, n_keys), columns).view(batch, heads, queries, -1)


def _on_single(weights: Tensor, places: Tensor) -> Tensor:
    """Weight on one key for each query and class, places (batch, query, class) or below 0 for none."""
    n_keys = weights.shape[-1]
    there = (places >= 0) & (places < n_keys)
    index = places.clamp(0, n_keys - 1)[:, None].expand(-1, weights.shape[1], -1, -1)
    return weights.gather(-1, index) * there[:, None]


def mass_on_pairs(weights: Tensor, pairs: Tensor) -> Tensor:
    """Weight on pairs (batch or 1, query, key); (batch, head, query). Few pairs are picked, many are multiplied."""
    batch, heads, queries, _ = weights.shape
    pairs = pairs.expand(batch, queries, -1)
    row, query, key = pairs.nonzero(as_tuple=True)
    if len(row) > DENSE * pairs.numel():
        return torch.einsum("bhqk,bqk->bhq", weights, pairs.to(weights.dtype))
    mass = torch.zeros(batch, queries, heads, device=weights.device)
    mass.index_put_((row, query), weights[row, :, query, key], accumulate=True)
    return mass.transpose(1, 2)


def key_norms(value: Tensor, gram: Tensor) -> Tensor:
    """Length of each head's transformed value ||v_j W_h||, (batch, head, key); value (batch, kv_head, key, dim)."""
    grouped = by_query_head(value.float(), len(gram))
    moved = torch.einsum("bhkd,hde->bhke", grouped, gram.to(grouped))
    return functional.relu((moved * grouped).sum(-1)).sqrt()
