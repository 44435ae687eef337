"""Where would this head look? Targets as functions of the tokens, evaluated for a block of queries at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from headlab.models.texts.batch import Tokens


@dataclass(frozen=True)
class Scene:
    """The tokens on both sides of an attention layer, and what labels may know about them.

    `extra` is what the batch carries beside its tokens, and `frequencies` (vocabulary,) where a label needs them.
    """

    queries: Tokens
    keys: Tokens
    tokenizer: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def self_attention(self) -> bool:
        return self.queries is self.keys

    def positions(self, side: Tokens) -> Tensor:
        """Place of each token in its text, 0 for the first real one; (batch, token)."""
        return side.valid.long().cumsum(-1) - 1

    def first(self) -> Tensor:
        """The first real key of each text. Bool (batch, key)."""
        return self.keys.valid & (self.positions(self.keys) == 0)

    def spelt(self, accept: Callable[[str], bool]) -> Tensor:
        """Keys whose token, without the marks of its tokenizer, is accepted; none without a tokenizer. (batch, key)"""
        import torch

        ids, keys = self.keys.ids, self.keys
        if self.tokenizer is None:
            return torch.zeros_like(keys.valid)
        found, place = torch.unique(ids, return_inverse=True)
        pieces = self.tokenizer.convert_ids_to_tokens(found.tolist())
        accepted = torch.tensor([piece is not None and accept(plain(piece)) for piece in pieces], device=ids.device)
        return accepted[place] & keys.valid & ~keys.special


def plain(piece: str) -> str:
    """A token without the marks that tokenizers put for blanks and continuations."""
    return piece.removeprefix("##").strip("▁ĠĊ ")


@dataclass(frozen=True)
class KeyClass:
    """The same keys for every query: `keys(scene)` is bool (batch, key)."""

    keys: Callable[[Scene], Tensor]

    def block(self, scene: Scene, rows: slice) -> Tensor:
        """Bool (batch, 1, key)."""
        return self.keys(scene)[:, None]


@dataclass(frozen=True)
class OneKey:
    """One key for each query: `key(scene)` is its index, (batch, query), below 0 where there is none."""

    key: Callable[[Scene], Tensor]

    def block(self, scene: Scene, rows: slice) -> Tensor:
        """Bool (batch, row, key)."""
        import torch

        place = torch.arange(scene.keys.ids.shape[1], device=scene.keys.ids.device)
        return self.key(scene)[:, rows, None] == place


@dataclass(frozen=True)
class Pairs:
    """Any keys for each query: `pairs(scene, rows)` is bool (batch, row, key) for those queries alone."""

    pairs: Callable[[Scene, slice], Tensor]

    def block(self, scene: Scene, rows: slice) -> Tensor:
        """Bool (batch, row, key)."""
        return self.pairs(scene, rows)


Target = KeyClass | OneKey | Pairs


def gap(scene: Scene, rows: slice) -> Tensor:
    """Key position minus query position, (batch, row, key)."""
    return scene.positions(scene.keys)[:, None] - scene.positions(scene.queries)[:, rows, None]


def segments(side: Tokens) -> Tensor:
    """Number of the segment that each token is in; a separator closes its segment. (batch, token)"""
    closed = side.separator.long().cumsum(-1)
    return closed - side.separator.long()
