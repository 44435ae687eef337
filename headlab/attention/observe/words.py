"""From word pieces to words: which word each word looks at most, and how often that is the one a label expects."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headlab.attention.observe.geometry import Geometry
from headlab.attention.observe.statistics import TextSums, sum_rows
from headlab.attention.reach.blocks import Block
from headlab.attention.reach.sites import Site
from headlab.labels import Scene


class WordReader:
    """Attention between words, after Clark et al. 2019 (1906.04341): the sum over the pieces of the word looked at,
    the mean over those of the word that looks (`first`: its first piece alone, as in their code).

    Pieces of no word (special tokens) are left out before the arg max, and so is the word itself in self-attention.
    Only the arg max of each word is kept, never word x word. The batch carries `query_words` and `key_words`
    (batch, token), -1 for none, in order of the words; `pairs` (pair, 4) of name, row, word, and whether the baseline
    hits; and `pair_targets` (pair, target), -1 beyond the last.
    """

    def __init__(self, geometry: Geometry, scene: Scene, site: Site) -> None:
        self.geometry, self.scene = geometry, scene
        self.query_words = scene.extra["query_words"][:, -geometry.n_queries :]
        self.key_words = scene.extra["key_words"]
        self.n_queries, self.n_keys = int(self.query_words.max()) + 1, int(self.key_words.max()) + 1
        batch = self.query_words.shape[0]
        device = geometry.device
        self.membership = (self.key_words[:, :, None] == torch.arange(self.n_keys, device=device)).float()
        self.top = torch.full((batch, site.n_heads, max(1, self.n_queries)), -1, device=device)
        self.carry = torch.zeros(batch, site.n_heads, self.n_keys, device=device)
        self.outside = torch.zeros(1, batch, site.n_heads, geometry.n_queries, device=device)
        self.first_only = bool(scene.extra.get("first_piece", False))

    @staticmethod
    def reads(scene: Scene, kind: str) -> bool:
        """Whether the batch says which words this kind of attention is between."""
        return kind in scene.extra.get("word_kinds", ())

    def read(self, block: Block) -> None:
        """Note which word the words of the block's queries look at most."""
        batch, heads, rows, n_keys = block.weights.shape
        queries = block.rows
        share = block.weights / block.total.unsqueeze(-1)
        to_words = torch.bmm(share.reshape(batch, heads * rows, n_keys), self.membership[:, :n_keys])
        to_words = to_words.view(batch, heads, rows, self.n_keys)
        self.outside[0, :, :, queries] = (share.sum(-1) - to_words.sum(-1)).clamp_min(0)
        words = self.query_words[:, queries]
        for row in range(batch):
            self._note(row, to_words[row], words[row], block.start)

    def _note(self, row: int, to_words: Tensor, words: Tensor, start: int) -> None:
        """Means over the pieces of each word; a word that the last block has begun is carried on."""
        present, place = words[words >= 0].unique_consecutive(return_inverse=True)
        if not len(present):
            return
        pieces = to_words[:, words >= 0]  # (head, piece, word)
        if self.first_only:
            pieces = pieces * self._is_first(row, words, start)[words >= 0][:, None]
        sums = torch.zeros(pieces.shape[0], len(present), self.n_keys, device=pieces.device).index_add_(
            1, place, pieces
        )
        begun = start > 0 and bool((self.query_words[row, :start] == present[0]).any())
        if begun:
            sums[:, 0] += self.carry[row]
        self.carry[row] = sums[:, -1]
        if self.geometry.self_attention:
            sums = sums.scatter(2, present[None, :, None].expand(sums.shape[0], -1, 1), -1.0)
        peak, top = sums.max(-1)
        alike = peak * 0.999 <= sums.clamp_min(0).sum(-1) / (sums > 0).sum(-1).clamp_min(1)
        self.top[row, :, present] = top.masked_fill(alike & ((sums > 0).sum(-1) > 1), -1)

    def _is_first(self, row: int, words: Tensor, start: int) -> Tensor:
        before = self.query_words[row, start - 1 : start] if start else words.new_full((1,), -1)
        return (words != torch.cat([before, words[:-1]])).float()

    def excluded_sums(self) -> TextSums:
        """Attention of the pieces of words to what is no word, (batch, head, 1)."""
        counted = self.geometry.query_valid & (self.query_words >= 0)
        nothing = torch.zeros(1, *counted.shape, device=counted.device)
        return sum_rows(self.outside, counted[None, None], nothing)

    def sums(self, chosen: Sequence[str]) -> TextSums:
        """Items are the names of pairs: hits over the pairs of each text, with the baseline's hits as chance level."""
        pairs, targets = self.scene.extra["pairs"], self.scene.extra["pair_targets"]
        names = self.scene.extra["pair_names"]
        batch, heads, _ = self.top.shape
        name, row, word, baseline = pairs.unbind(-1)
        top = self.top[row, :, word]  # (pair, head)
        hits = (top[:, :, None] == targets[:, None]).any(-1) & (top >= 0)
        place = row * len(names) + name

        def total(values: Tensor) -> Tensor:
            empty = torch.zeros(batch * len(names), *values.shape[1:], dtype=torch.float64, device=values.device)
            return empty.index_add_(0, place, values.double()).view(batch, len(names), *values.shape[1:])

        places = [names.index(each) for each in chosen]
        value, count, chance = total(hits), total(torch.ones_like(name)), total(baseline)
        return TextSums(value[:, places].transpose(1, 2), count[:, places], chance[:, places])
