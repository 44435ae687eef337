"""Looks at [CLS] (or another token that the tokenizer puts first); undefined where none is added."""

from headlab.labels.label import Label
from headlab.labels.scene import KeyClass, Scene


def added_first(scene: Scene):
    """The first token, where the tokenizer added it and it closes no segment. Bool (batch, key)."""
    return scene.first() & scene.keys.special & ~scene.keys.separator


LABEL = Label(
    name="cls",
    title="[CLS]",
    text="Looks at the token that the tokenizer puts first.",
    letter="C",
    colour="#882255",
    statistic="target",
    threshold=0.6,
    published_chance=1 / 128,  # one [CLS] in 128 tokens
    definition="mean attention to the [CLS] or start token that the tokenizer adds, above .6 at 1 in 128 tokens",
    source="Clark et al. 2019 (1906.04341), figure 6 and its code",
    target=KeyClass(added_first),
    keys=KeyClass(added_first),
)
