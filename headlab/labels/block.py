"""Stays within the segment of the query, in texts of several segments (sentence pairs)."""

from headlab.labels.label import Label
from headlab.labels.scene import Pairs, Scene, segments


def same_segment(scene: Scene, rows: slice):
    """Keys of the query's own segment, separators left out; none in texts of one segment. Bool (batch, row, key)."""
    if not scene.self_attention:
        return (scene.keys.valid & False)[:, None]
    number = segments(scene.keys)
    words = scene.keys.valid & ~scene.keys.special & ~scene.keys.separator
    several = number.masked_fill(~words, -1).amax(-1) > number.masked_fill(~words, 1 << 30).amin(-1)
    same = number[:, rows, None] == number[:, None]
    return same & words[:, None] & words[:, rows, None] & several[:, None, None]


LABEL = Label(
    name="block",
    title="block",
    text="Stays within the segment of the query.",
    letter="G",
    colour="#999933",
    general=True,
    statistic="target",
    threshold=0.9,
    published_chance=0.5,  # two segments of equal length
    definition="mean attention of words to words of their own segment, in texts of two segments or more, above .9 "
    "where half of the keys are of the segment",
    source="after Kovaleva et al. 2019 (1908.08593): block = intra-sentence attention; their classes come from a "
    "trained classifier, the .9 is ours",
    target=Pairs(same_segment),
)
