"""Looks at the columns of tokens that carry no text: [CLS], [SEP], start and end tokens."""

from headlab.labels.label import Label
from headlab.labels.scene import KeyClass, Scene


def added(scene: Scene):
    """Tokens that the tokenizer added, and separators. Bool (batch, key)."""
    return scene.keys.special | scene.keys.separator


LABEL = Label(
    name="vertical",
    title="vertical",
    text="Looks at the columns of tokens that carry no text.",
    letter="V",
    colour="#AA4499",
    general=True,
    statistic="target",
    threshold=0.6,
    published_chance=3 / 128,  # [CLS] and two [SEP]
    definition="mean attention to all special tokens together, over the queries that see one, above .6 at 3 in 128",
    source="after Kovaleva et al. 2019 (1908.08593), who sort maps by a trained classifier and set no threshold; .6 is "
    "that of Clark et al. 2019 for one special token",
    target=KeyClass(added),
    keys=KeyClass(added),
)
