"""Looks at itself: mean attention from a token to itself."""

from headlab.labels.label import Label

LABEL = Label(
    name="self",
    title="itself",
    text="Looks at its own position.",
    letter="I",
    colour="#CC79A7",
    statistic="self_mass",
    threshold=0.5,
    published_chance=1 / 128,
    definition="mean attention of a token to itself above .5 at 128 tokens (the rule for previous and next token)",
    source="after Clark et al. 2019 (1906.04341), who measure it and set no threshold of its own",
)
