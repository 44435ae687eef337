"""Looks everywhere: entropy close to that of uniform attention over the visible keys."""

import math

from headlab.labels.label import UNIFORM, Label

LABEL = Label(
    name="broad",
    title="broad",
    text="Spreads its attention over nearly all tokens.",
    letter="B",
    colour="#F0E442",
    statistic="entropy_norm",
    threshold=3.8 / math.log(128),  # .783
    published_chance=None,
    chance=UNIFORM,
    definition="mean of entropy / ln(visible keys) above .783, which is 3.8 nats at 128 visible tokens",
    source="Clark et al. 2019 (1906.04341), code of figure 6: entropy above 3.8 nats at about 128 tokens",
)
