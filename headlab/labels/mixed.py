"""Looks at special tokens and neighbours together, where no other label of the run but broad holds."""

from headlab.labels.label import Label
from headlab.labels.scene import Pairs, Scene, gap


def vertical_and_diagonal(scene: Scene, rows: slice):
    """Special tokens, separators, the first token, and the tokens within one of the query. Bool (batch, row, key)."""
    columns = scene.keys.special | scene.keys.separator | scene.first()
    return columns[:, None] | ((gap(scene, rows).abs() <= 1) & scene.self_attention)


LABEL = Label(
    name="mixed",
    title="mixed",
    text="Looks at special tokens and neighbours together.",
    letter="M",
    colour="#DDCC77",
    general=True,
    statistic="target",
    threshold=0.6,
    published_chance=6 / 128,
    definition="mean attention to special tokens, the first token and the neighbours together above .6 at 6 in 128 "
    "tokens, of heads that carry none of the other labels of the run but broad: false above the threshold where one "
    "of them holds",
    source="after Kovaleva et al. 2019 (1908.08593): vertical + diagonal; the threshold is ours",
    target=Pairs(vertical_and_diagonal),
    alone_but=("broad",),
)
