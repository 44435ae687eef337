"""Looks at the last occurrence of its own token."""

from headlab.labels.inputs.repeated import RepeatedTokens, earlier
from headlab.labels.label import Label
from headlab.labels.scene import OneKey

LABEL = Label(
    name="duplicate_token",
    title="duplicate token",
    text="Looks at the last occurrence of its own token.",
    letter="d",
    colour="#6699CC",
    statistic="target",
    threshold=0.3,
    published_chance=1 / 75,
    definition="mean attention of a token in the second of two copies of 50 random tokens to its occurrence in the "
    "first, above .3",
    source="after Wang et al. 2022 (2211.00593) and TransformerLens' duplicate-token pattern; the threshold is ours",
    target=OneKey(lambda scene: earlier(scene, 0)),
    input=RepeatedTokens(),
)
