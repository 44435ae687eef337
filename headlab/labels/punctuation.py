"""Looks at full stops and commas; undefined on texts without any, and without a tokenizer."""

from headlab.labels.label import Label
from headlab.labels.scene import KeyClass, Scene


def stops_and_commas(scene: Scene):
    """Tokens that are a full stop or a comma. Bool (batch, key)."""
    return scene.spelt(lambda piece: piece in {".", ","})


LABEL = Label(
    name="punctuation",
    title="punctuation",
    text="Looks at full stops and commas.",
    letter=",",
    colour="#CC6677",
    statistic="target",
    threshold=0.6,
    published_chance=0.1,  # about one token in ten of English prose
    definition="mean attention to full stops and commas, over the queries that see one, above .6 where they are a "
    "tenth of the visible tokens",
    source="Clark et al. 2019 (1906.04341), figure 6 and its code ('.' and ','); the tenth is ours",
    target=KeyClass(stops_and_commas),
    keys=KeyClass(stops_and_commas),
)
