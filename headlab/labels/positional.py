"""Looks at one fixed offset, whichever it is: the mean attention at the best offset, chosen on other texts."""

from headlab.labels.label import Label

LABEL = Label(
    name="positional",
    title="fixed offset",
    text="Looks at one fixed offset, whichever fits best.",
    letter="O",
    colour="#009E73",
    general=True,
    statistic="offset_mass",
    threshold=0.5,
    published_chance=1 / 128,
    definition="mean attention at the best fixed offset within 32 tokens, chosen on half of the texts and measured on "
    "the other half, above .5 at 128 tokens",
    source="after Clark et al. 2019 (1906.04341); Voita et al. 2019 (1905.09418) ask for 90 % of the arg max instead",
)
