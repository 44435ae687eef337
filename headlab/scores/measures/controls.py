"""The control of an order by label: random heads from the same layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headlab.base.masks import HeadId, LayerKey

if TYPE_CHECKING:
    import pandas as pd


def matched_random(chosen: Sequence[Sequence], index: pd.MultiIndex, seed: int = 0) -> list[HeadId]:
    """As many random heads from each (kind, layer) as `chosen` has there, in the order of the layers of `chosen`.

    Heads of `chosen` are left out while a layer has others; where it has too few (more than half of the layer was
    chosen), chosen ones fill up at random. So every prefix has its layers in common with that of `chosen`. `index`
    holds (kind, layer, head) of all heads. The same seed gives the same heads.
    """
    rng = np.random.default_rng(seed)
    taken = {HeadId(str(kind), int(layer), int(head)) for kind, layer, head in chosen}
    waiting: dict[LayerKey, list[HeadId]] = {}
    for kind, layer, head in index:
        waiting.setdefault((str(kind), int(layer)), []).append(HeadId(str(kind), int(layer), int(head)))
    for layer, all_heads in waiting.items():
        shuffled = [all_heads[place] for place in rng.permutation(len(all_heads))]
        waiting[layer] = sorted(shuffled, key=lambda head: head in taken)  # stable: others first, each part shuffled
    return [waiting[str(kind), int(layer)].pop(0) for kind, layer, _ in chosen]
