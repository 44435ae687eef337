"""Looks at the least frequent token of the text."""

from headlab.labels.label import Label
from headlab.labels.scene import KeyClass, Scene

COMMON = 500


def rarest(scene: Scene):
    """The text's least frequent tokens, unless they are among the 500 most frequent ones. Bool (batch, key)."""
    frequencies = scene.extra["frequencies"]
    words = scene.keys.valid & ~scene.keys.special & ~scene.keys.separator
    counted = frequencies[scene.keys.ids].masked_fill(~words, 1 << 60)
    least = counted.amin(-1, keepdim=True)
    common = frequencies.topk(min(COMMON, len(frequencies))).values[-1]
    return words & (counted == least) & (least < common)


LABEL = Label(
    name="rare_token",
    title="rare token",
    text="Looks at the least frequent token of the text.",
    letter="R",
    colour="#661100",
    statistic="target",
    threshold=0.5,
    published_chance=0.0,
    definition="share of words whose largest weight, special tokens left out, is on the least frequent token of the "
    "text, in texts whose rarest token is not among the 500 most frequent; above .5",
    source="Voita et al. 2019 (1905.09418), section 5.3 (66 % of sentences); frequencies are those of the given texts, "
    "ties count, the .5 is ours",
    target=KeyClass(rarest),
    reading="argmax",
    exclude=("special",),
    frequencies=True,
)
