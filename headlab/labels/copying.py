"""Raises the logit of the token that it looks at; undefined for models without an output embedding.

The threshold .1 is headlab's own, in no paper, and was chosen after looking at the scores of models (SmolLM2's among
them): it says that a head stands out, not that a published boundary is crossed.
"""

from headlab.labels.inputs.repeated import RepeatedTokens
from headlab.labels.label import Label

LABEL = Label(
    name="copying",
    title="copying",
    text="Raises the logit of the token that it looks at.",
    letter="c",
    colour="#44AA99",
    statistic="copying",
    threshold=0.1,
    published_chance=1 / 50,
    chance="permutation of tokens: the mean over all ways to say whose each raise is",
    definition="share of the raise in logits, over the text's own tokens and less their mean, that the direct path of "
    "a token through the head gives to that very token, on random tokens; above .1",
    source="after the copying score of Olsson et al. 2022 (2209.11895), left in 0 .. 1 and without attention weights: "
    "it is the output circuit alone; the final norm is its weight; the threshold .1 is ours, chosen after looking "
    "at models",
    input=RepeatedTokens(),
)
