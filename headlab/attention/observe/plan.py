"""What a set of labels asks of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headlab.labels import Label


@dataclass(frozen=True)
class LabelPlan:
    """The labels of an observation by what they read."""

    targets: list[Label]
    contributions: list[Label]
    pairs: list[Label]
    pair_names: list[str]
    by_text: list[Label]
    offset_mass: bool
    offset_hits: bool
    copying: bool

    @classmethod
    def of(cls, labels: Sequence[Label]) -> LabelPlan:
        """Sort labels by what they read."""
        read = {label.statistic for label in labels}
        pairs = [label for label in labels if label.statistic == "word_pairs"]
        return cls(
            targets=[label for label in labels if label.statistic == "target"],
            contributions=[label for label in labels if label.keys is not None],
            pairs=pairs,
            pair_names=list(dict.fromkeys(name for label in pairs for name in (label.pair or "", *label.beside))),
            by_text=[label for label in labels if label.by_text],
            offset_mass="offset_mass" in read,
            offset_hits="offset_hits" in read,
            copying="copying" in read,
        )
