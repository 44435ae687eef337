"""Looks at the token after: mean attention from a token to the one after it."""

from headlab.labels.label import Label

LABEL = Label(
    name="next_token",
    title="next token",
    text="Looks at the token just after.",
    letter="N",
    colour="#56B4E9",
    statistic="next_mass",
    threshold=0.5,
    published_chance=1 / 128,  # bidirectional texts of 128 tokens
    definition="mean attention to the next token, over the tokens that have a visible one, above .5 at 128 tokens",
    source="Clark et al. 2019 (1906.04341), figure 6 and its code",
)
