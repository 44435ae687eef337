"""Looks, while a fact from far back is being repeated, at the very token that is written next."""

from headlab.labels.inputs.needle import Haystacks, copied_from
from headlab.labels.label import Label
from headlab.labels.scene import Pairs

LABEL = Label(
    name="retrieval",
    title="retrieval",
    text="Looks up a sentence hidden in a long text while the model repeats it.",
    letter="r",
    colour="#117733",
    statistic="target",
    threshold=0.1,
    published_chance=0.0,
    definition="share of decoding steps that write a token of the needle at which the largest weight is on that token "
    "within the needle, in a haystack of 256 tokens, over runs that say more than half of the needle; above .1",
    source="Wu et al. 2024 (2404.15574): retrieval score, threshold .1; there hits are divided by all tokens of the "
    "needle, here by those that were written",
    target=Pairs(copied_from),
    reading="argmax",
    input=Haystacks(),
)
