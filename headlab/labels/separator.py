"""Looks at separators: mean attention to [SEP] or the end-of-sentence token; undefined on texts without one."""

from headlab.labels.label import Label
from headlab.labels.scene import KeyClass

LABEL = Label(
    name="separator",
    title="separator",
    text="Looks at the tokens that close a segment.",
    letter="S",
    colour="#D55E00",
    statistic="separator_mass",
    threshold=0.6,
    published_chance=2 / 128,  # two [SEP] in 128 tokens
    definition="mean attention to separator tokens, over the texts that have one, above .6 at 2 in 128 tokens",
    source="Clark et al. 2019 (1906.04341), figure 6 and its code",
    keys=KeyClass(lambda scene: scene.keys.separator),
)
