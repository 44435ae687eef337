"""Looks at separators: mean attention to [SEP] or the end-of-sentence token; undefined on texts without one."""

from headlab.labels import KeyClass, Label

LABEL = Label(
    name="separator",
    statistic="separator_mass",
    threshold=0.6,
    published_chance=2 / 128,  # two [SEP] in 128 tokens
    definition="mean attention to separator tokens, over the texts that have one, above .6 at 2 in 128 tokens",
    source="Clark et al. 2019 (1906.04341), figure 6 and its code",
    keys=KeyClass(lambda scene: scene.keys.separator),
)
