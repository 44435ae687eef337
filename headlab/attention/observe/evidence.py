"""The running sums of one layer, and the evidence for labels that is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from headlab.attention.observe.plan import LabelPlan
from headlab.attention.observe.running_sums import REPLICATES, RunningSums
from headlab.attention.observe.statistics import MAX_OFFSET, ROW_STATISTICS, TextSums
from headlab.attention.reach.sites import Site
from headlab.labels import Label
from headlab.labels.evidence import Evidence

Extra = dict[str, Any]  # further columns of a label, by suffix


class Halves:
    """Running sums over texts with even ids, on which something is chosen, and over odd ones, on which it is judged."""

    def __init__(self, n_heads: int, n_items: int) -> None:
        self.chosen_on = RunningSums(n_heads, n_items)
        self.measured_on = RunningSums(n_heads, n_items, range(n_items))

    def add(self, sums: Any, weights: np.ndarray, odd: np.ndarray) -> None:
        """Add the texts of a batch, each to its half."""
        if not odd.all():
            self.chosen_on.add(sums, texts=~odd)
        if odd.any():
            self.measured_on.add(sums, weights, texts=odd)


class SiteSums:
    """Everything that is summed over texts for one layer."""

    def __init__(self, site: Site, labels: Sequence[Label], plan: LabelPlan) -> None:
        heads = self.n_heads = site.n_heads
        read = {label.statistic for label in labels}
        replicated = [2 * i for i, name in enumerate(ROW_STATISTICS) if name in read]
        self.plan = plan
        self.rows = RunningSums(heads, 2 * len(ROW_STATISTICS), replicated)
        self.norms = RunningSums(heads, 2)
        self.targets = RunningSums(heads, len(plan.targets), range(len(plan.targets)))
        self.shares = RunningSums(heads, len(plan.contributions))
        self.copying = RunningSums(heads, 1, range(1))
        self.excluded = RunningSums(heads, 1)  # attention to special tokens, of labels that leave them out
        self.by_text = RunningSums(heads, len(plan.by_text))
        offsets = 2 * MAX_OFFSET + 1
        searched = [name for name in ("offset_mass", "offset_hits") if name in read]
        self.offsets: dict[str, Halves] = {name: Halves(heads, offsets) for name in searched}
        self.pairs = Halves(heads, len(plan.pair_names))

    def evidence(self, label: Label) -> tuple[Evidence, Extra]:
        """The evidence for a label in this layer, and its further columns."""
        evidence, extra = self._evidence(label)
        if label in self.plan.contributions:
            extra["norm_share"] = self.shares.mean()[:, self.plan.contributions.index(label)]
        if label.statistic in ("offset_hits", "word_pairs") or "special" in label.exclude:
            extra["excluded"] = self.excluded.mean()[:, 0]
        if label in self.plan.by_text:
            extra["share"] = self.by_text.mean()[:, self.plan.by_text.index(label)]
        return evidence, extra

    def add_rows(self, sums: TextSums, weights: np.ndarray) -> None:
        """Add a batch's row statistics, and for labels that ask for it on how many texts each is above threshold."""
        self.rows.add(sums, weights)
        if self.plan.by_text:
            items = [2 * ROW_STATISTICS.index(label.statistic) for label in self.plan.by_text]
            value, count, chance = sums.value[:, :, items], sums.count[:, items], sums.chance[:, items]
            n = count.clamp_min(1)
            limits = [label.threshold_at((chance / n)[:, i].cpu().numpy()) for i, label in enumerate(self.plan.by_text)]
            limit = torch.from_numpy(np.stack(limits, -1)).to(value)[:, None]
            above = ((value / n[:, None] > limit) & (count[:, None] > 0)).double()
            self.by_text.add(TextSums(above, (count > 0).double(), chance))

    def _evidence(self, label: Label) -> tuple[Evidence, Extra]:
        if label.statistic in ("offset_mass", "offset_hits"):
            return self._of_offset(self.offsets[label.statistic])
        if label.statistic == "word_pairs":
            return self._of_pairs(label)
        if label.statistic == "target":
            return self._of_item(self.targets, self.plan.targets.index(label)), {}
        if label.statistic == "copying":
            return self._of_item(self.copying, 0), {}
        return self._of_item(self.rows, 2 * ROW_STATISTICS.index(label.statistic)), {}

    def _of_item(self, sums: RunningSums, item: int) -> Evidence:
        ones = np.ones(self.n_heads)
        replicates = sums.replicate_means()[:, :, sums.replicated.index(item)]
        return Evidence(sums.mean()[:, item], ones * sums.chance_level()[item], ones * sums.count[item], replicates)

    def _of_offset(self, halves: Halves) -> tuple[Evidence, Extra]:
        """The best offset above chance on one half of the texts, its score on the other half (on the same, if one)."""
        first, second = halves.chosen_on, halves.measured_on
        if not second.count.any():
            second = first
        elif not first.count.any():
            first = second
        # An offset that few queries can see says little: the only query to see offset 1 - T is the last one.
        frequent = first.count >= 0.5 * max(1, first.count[MAX_OFFSET])
        best = np.where(frequent, first.mean() - first.chance_level(), -np.inf).argmax(1)
        heads = np.arange(self.n_heads)
        offset = pd.array(best - MAX_OFFSET, dtype="Int64")
        if not frequent.any():  # cross-attention has no offsets
            offset[:] = pd.NA
        if second.replicated:
            replicates = second.replicate_means()[:, heads, best]
        else:  # one text: nothing to draw from
            replicates = np.full((REPLICATES, self.n_heads), np.nan)
        evidence = Evidence(second.mean()[heads, best], second.chance_level()[best], second.count[best], replicates)
        return evidence, {"offset": offset}

    def _of_pairs(self, label: Label) -> tuple[Evidence, Extra]:
        """Hits on the odd sentences; the half on which heads are chosen is a further column."""
        first, second = self.pairs.chosen_on, self.pairs.measured_on
        names = self.plan.pair_names
        item = names.index(label.pair or "")
        extra = {
            "select": first.mean()[:, item],
            "select_null": np.full(self.n_heads, first.chance_level()[item]),
            "select_n": np.full(self.n_heads, int(first.count[item])),
        }
        if label.beside:
            sure, possible = (names.index(name) for name in label.beside)
            n = second.count[possible] + second.count[sure]
            hits = second.value[:, sure] + second.value[:, possible]
            extra["aer"] = 1 - hits / n if n else np.full(self.n_heads, np.nan)
        return self._of_item(second, item), extra
