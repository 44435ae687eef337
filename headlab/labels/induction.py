"""Looks at the token after the last occurrence of its own: what came next then."""

from headlab.labels.inputs.repeated import RepeatedTokens, earlier
from headlab.labels.label import Label
from headlab.labels.scene import OneKey

LABEL = Label(
    name="induction",
    title="induction",
    text="Looks at the token after the last occurrence of its own.",
    letter="i",
    colour="#332288",
    statistic="target",
    threshold=0.3,
    published_chance=1 / 75,  # the middle of the second copy of 50 tokens
    definition="mean attention of a token in the second of two copies of 50 random tokens to the token after its "
    "occurrence in the first, above .3",
    source="prefix matching of Olsson et al. 2022 (2209.11895), who repeat 25 tokens four times and set no threshold; "
    "offset 1 - period as in TransformerLens, first copy left out",
    target=OneKey(lambda scene: earlier(scene, 1)),
    input=RepeatedTokens(),
)
