"""Has its largest weight at one fixed offset nearly always, whatever that weight is."""

from headlab.labels.label import Label

LABEL = Label(
    name="positional_argmax",
    title="fixed offset (arg max)",
    text="Its largest weight is at one fixed offset.",
    letter="o",
    colour="#5FC9A8",
    general=True,
    statistic="offset_hits",
    threshold=0.9,
    published_chance=0.0,
    definition="share of words whose largest weight, special tokens left out, is at the best fixed offset within 32 "
    "tokens; chosen on half of the texts, measured on the other half; 90 % or more",
    source="Voita et al. 2019 (1905.09418), section 5.1: at least 90 % of the time, EOS left out",
)
