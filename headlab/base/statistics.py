"""What the head table says of every head beside its labels: the statistics, in the order of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MASS = "mean mass"


class Statistic(NamedTuple):
    """A title for axes, a unit, a sentence for people, and `meaning`, a few words for lists."""

    title: str
    unit: str
    text: str
    meaning: str


STATISTICS: Mapping[str, Statistic] = {
    "entropy": Statistic(
        "entropy",
        "nats",
        "Mean entropy of an attention row; 0 where all mass is on one token. Where rows sum below 1 "
        "(learned sinks), of the row scaled back to 1.",
        "entropy of the attention row, in nats",
    ),
    "entropy_norm": Statistic(
        "relative entropy",
        "0 to 1",
        "Mean of each row's entropy divided by the log of its number of visible keys; 1 = uniform. Rows "
        "with one visible key are left out.",
        "entropy divided by the logarithm of the number of visible keys, 0 to 1",
    ),
    "max_weight": Statistic(
        "largest weight",
        MASS,
        "Mean of the largest weight in each row.",
        "largest weight in the row",
    ),
    "first_mass": Statistic(
        "attention to the first token",
        MASS,
        "Mean weight on the first token of the text, whatever it is.",
        "weight on the first token",
    ),
    "separator_mass": Statistic(
        "attention to separators",
        MASS,
        "Mean weight, summed over the row, on tokens that close a segment ([SEP], end of sentence).",
        "weight on separator tokens",
    ),
    "self_mass": Statistic(
        "attention to itself",
        MASS,
        "Mean weight of a token on its own position.",
        "weight on the token itself",
    ),
    "prev_mass": Statistic(
        "attention to the previous token",
        MASS,
        "Mean weight on the token just before, over the rows that have one.",
        "weight on the token before",
    ),
    "next_mass": Statistic(
        "attention to the next token",
        MASS,
        "Mean weight on the token just after, over the rows that have one and may see it.",
        "weight on the token after",
    ),
    "distance": Statistic(
        "mean distance",
        "tokens",
        "Mean distance between query and key, weighted by attention.",
        "mean distance between query and key, in tokens",
    ),
    "output_norm": Statistic(
        "output norm",
        "model units",
        "Mean length of what the head adds to its layer's output, ||z_h W_h||.",
        "norm of what the head adds to the residual stream",
    ),
    "sink_logit_mass": Statistic(
        "attention to the learned sink",
        MASS,
        "Mean mass that goes to a learned sink logit, that is to no token.",
        "weight that a learned sink takes out of the row",
    ),
}
