"""The columns of every table of a run: what each is called, its unit, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MASS = "mean mass"


class Column(NamedTuple):
    """A short title for axes, a unit ("" where there is none), a sentence or two, and a few words for lists."""

    title: str
    unit: str
    text: str
    meaning: str = ""

    @property
    def axis(self) -> str:
        """Title and unit as they stand on an axis."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


# Of heads: who they are, and what was measured of them, in the order of the columns.
IDENTITY: Mapping[str, Column] = {
    "kind": Column("kind", "", "Which attention: encoder, decoder (self-attention), or cross (decoder to encoder)."),
    "layer": Column("layer", "", "Counted from 0."),
    "head": Column("head", "", "Counted from 0."),
    "kv_group": Column("key-value group", "", "Heads of one layer with the same number share their keys and values."),
    "n_queries": Column("query rows", "rows", "Number of valid query rows that the means are over."),
    "labels": Column("labels", "", "All labels that the head carries, or none."),
}

STATISTICS: Mapping[str, Column] = {
    "entropy": Column(
        "entropy",
        "nats",
        "Mean entropy of an attention row; 0 where all mass is on one token. Where rows sum below 1 "
        "(learned sinks), of the row scaled back to 1.",
        "entropy of the attention row, in nats",
    ),
    "entropy_norm": Column(
        "relative entropy",
        "0 to 1",
        "Mean of each row's entropy divided by the log of its number of visible keys; 1 = uniform. Rows "
        "with one visible key are left out.",
        "entropy divided by the logarithm of the number of visible keys, 0 to 1",
    ),
    "max_weight": Column(
        "largest weight",
        MASS,
        "Mean of the largest weight in each row.",
        "largest weight in the row",
    ),
    "first_mass": Column(
        "attention to the first token",
        MASS,
        "Mean weight on the first token of the text, whatever it is.",
        "weight on the first token",
    ),
    "separator_mass": Column(
        "attention to separators",
        MASS,
        "Mean weight, summed over the row, on tokens that close a segment ([SEP], end of sentence).",
        "weight on separator tokens",
    ),
    "self_mass": Column(
        "attention to itself",
        MASS,
        "Mean weight of a token on its own position.",
        "weight on the token itself",
    ),
    "prev_mass": Column(
        "attention to the previous token",
        MASS,
        "Mean weight on the token just before, over the rows that have one.",
        "weight on the token before",
    ),
    "next_mass": Column(
        "attention to the next token",
        MASS,
        "Mean weight on the token just after, over the rows that have one and may see it.",
        "weight on the token after",
    ),
    "distance": Column(
        "mean distance",
        "tokens",
        "Mean distance between query and key, weighted by attention.",
        "mean distance between query and key, in tokens",
    ),
    "output_norm": Column(
        "output norm",
        "model units",
        "Mean length of what the head adds to its layer's output, ||z_h W_h||.",
        "norm of what the head adds to the residual stream",
    ),
    "sink_logit_mass": Column(
        "attention to the learned sink",
        MASS,
        "Mean mass that goes to a learned sink logit, that is to no token.",
        "weight that a learned sink takes out of the row",
    ),
}

# Beside the column of a label, `<label>_<suffix>`.
EVIDENCE: Mapping[str, Column] = {
    "score": Column(
        "score", "", "What the label is decided on: the head carries it where the score is above the threshold."
    ),
    "null": Column("chance level", "", "The score of a head that looks at all visible keys alike."),
    "threshold": Column("threshold", "", "The published threshold, carried over to texts of this length."),
    "offset": Column("offset", "tokens", "The fixed offset that fits best: key position minus query position."),
    "n": Column("rows counted", "rows", "Number of query rows, or texts, that the score is a mean over."),
    "low": Column("95 % low", "", "Lower end of the 95 % interval of the score."),
    "high": Column("95 % high", "", "Upper end of the 95 % interval of the score."),
    "q": Column("q value", "", "p value of a score above chance, adjusted over all heads (Benjamini-Hochberg)."),
}

SWEEP: Mapping[str, Column] = {
    "strategy": Column("order", "", "Whose order decides which heads go first: a score, random, or label:<name>."),
    "ablation": Column("ablation", "", "What takes the place of a removed head's output: zero, or its mean."),
    "seed": Column("seed", "", "Seed of a random order; for the others, of the sweep."),
    "kinds": Column("kinds", "", "Kinds of attention that heads were removed from."),
    "budget": Column("budget", "", "How many heads to remove, as asked for."),
    "n_removed": Column("removed", "heads", "Number of heads removed."),
    "n_heads": Column("of", "heads", "Number of heads that could be removed."),
    "metric": Column("metric", "", "What was measured."),
    "value": Column("value", "", "The metric with the heads removed."),
    "baseline": Column("baseline", "", "The metric with all heads, on the same examples."),
    "drop": Column("drop", "", "How much worse than the baseline, in the metric's unit; above 0 always means worse."),
    "ci_low": Column("95 % low", "", "Lower end of the drop's 95 % interval (paired bootstrap over examples)."),
    "ci_high": Column("95 % high", "", "Upper end of the drop's 95 % interval (paired bootstrap over examples)."),
    "n_examples": Column("examples", "", "Number of examples that the metric is over."),
    "split": Column("split", "", "Which half of the examples; heads are chosen on one, judged on the other."),
    "seconds": Column("seconds", "s", "Time that the evaluation took."),
    "removed": Column("removed", "", "The heads that are gone."),
    "run": Column("run", "", "Key of the evaluation in the table of examples; cuts that are alike share it."),
}
