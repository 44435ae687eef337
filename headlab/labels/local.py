"""Looks at its neighbourhood: the two tokens on either side and itself."""

from headlab.labels.label import Label
from headlab.labels.scene import Pairs, gap

LABEL = Label(
    name="local",
    title="local",
    text="Looks at its neighbourhood: two tokens on either side and itself.",
    letter="L",
    colour="#88CCEE",
    general=True,
    statistic="target",
    threshold=0.5,
    published_chance=5 / 128,
    definition="mean attention within two tokens of the query, itself included, above .5 at 128 tokens",
    source="after Pande et al. 2021 (2101.09115): a local head's sieve is a window around the query; the .5 is that of "
    "Clark et al. 2019 for one offset",
    target=Pairs(lambda scene, rows: (gap(scene, rows).abs() <= 2) & scene.self_attention),
)
