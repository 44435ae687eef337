"""Looks at the token before: mean attention from a token to the one before it."""

from headlab.labels.label import Label

LABEL = Label(
    name="previous_token",
    title="previous token",
    text="Looks at the token just before.",
    letter="P",
    colour="#0072B2",
    statistic="prev_mass",
    threshold=0.5,
    published_chance=1 / 128,  # bidirectional texts of 128 tokens
    definition="mean attention to the previous token, over the tokens that have one, above .5 at 128 tokens",
    source="Clark et al. 2019 (1906.04341), figure 6 and its code",
)
