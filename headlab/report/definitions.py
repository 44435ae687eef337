"""What every column, label and metric means, with its unit: written once, shown anywhere."""

from __future__ import annotations

from typing import NamedTuple


class Definition(NamedTuple):
    """A short title for axes, a unit ("" where there is none), and one or two sentences."""

    title: str
    unit: str
    text: str

    @property
    def axis(self) -> str:
        """Title and unit as they stand on an axis."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


_MASS = "mean mass"

STATISTICS: dict[str, Definition] = {
    "entropy": Definition(
        "entropy",
        "nats",
        "Mean entropy of an attention row; 0 where all mass is on one token. Where rows sum below 1 (learned "
        "sinks), of the row scaled back to 1.",
    ),
    "entropy_norm": Definition(
        "relative entropy",
        "0 to 1",
        "Mean of each row's entropy divided by the log of its number of visible keys; 1 = uniform. Rows with "
        "one visible key are left out.",
    ),
    "max_weight": Definition("largest weight", _MASS, "Mean of the largest weight in each row."),
    "first_mass": Definition(
        "attention to the first token", _MASS, "Mean weight on the first token of the text, whatever it is."
    ),
    "separator_mass": Definition(
        "attention to separators",
        _MASS,
        "Mean weight, summed over the row, on tokens that close a segment ([SEP], end of sentence).",
    ),
    "self_mass": Definition("attention to itself", _MASS, "Mean weight of a token on its own position."),
    "prev_mass": Definition(
        "attention to the previous token", _MASS, "Mean weight on the token just before, over the rows that have one."
    ),
    "next_mass": Definition(
        "attention to the next token",
        _MASS,
        "Mean weight on the token just after, over the rows that have one and may see it.",
    ),
    "distance": Definition("mean distance", "tokens", "Mean distance between query and key, weighted by attention."),
    "output_norm": Definition(
        "output norm", "model units", "Mean length of what the head adds to its layer's output, ||z_h W_h||."
    ),
    "sink_logit_mass": Definition(
        "attention to the learned sink", _MASS, "Mean mass that goes to a learned sink logit, that is to no token."
    ),
}

IDENTITY: dict[str, Definition] = {
    "kind": Definition(
        "kind", "", "Which attention: encoder, decoder (self-attention), or cross (decoder to encoder)."
    ),
    "layer": Definition("layer", "", "Counted from 0."),
    "head": Definition("head", "", "Counted from 0."),
    "kv_group": Definition(
        "key-value group", "", "Heads of one layer with the same number share their keys and values."
    ),
    "n_queries": Definition("query rows", "rows", "Number of valid query rows that the means are over."),
    "labels": Definition("labels", "", "All labels that the head carries, or none."),
}

LABELS: dict[str, Definition] = {
    "previous_token": Definition("previous token", "", "Looks at the token just before."),
    "next_token": Definition("next token", "", "Looks at the token just after."),
    "self": Definition("itself", "", "Looks at its own position."),
    "positional": Definition("fixed offset", "", "Looks at one fixed offset, whichever fits best."),
    "separator": Definition("separator", "", "Looks at the tokens that close a segment."),
    "broad": Definition("broad", "", "Spreads its attention over nearly all tokens."),
    "sink": Definition("sink", "", "Parks its attention on the first token."),
    "positional_argmax": Definition("fixed offset (arg max)", "", "Its largest weight is at one fixed offset."),
    "cls": Definition("[CLS]", "", "Looks at the token that the tokenizer puts first."),
    "punctuation": Definition("punctuation", "", "Looks at full stops and commas."),
    "vertical": Definition("vertical", "", "Looks at the columns of tokens that carry no text."),
    "local": Definition("local", "", "Looks at its neighbourhood: two tokens on either side and itself."),
    "block": Definition("block", "", "Stays within the segment of the query."),
    "mixed": Definition("mixed", "", "Looks at special tokens and neighbours together."),
    "rare_token": Definition("rare token", "", "Looks at the least frequent token of the text."),
    "induction": Definition("induction", "", "Looks at the token after the last occurrence of its own."),
    "duplicate_token": Definition("duplicate token", "", "Looks at the last occurrence of its own token."),
    "copying": Definition("copying", "", "Raises the logit of the token that it looks at."),
    "retrieval": Definition("retrieval", "", "Looks up a sentence hidden in a long text while the model repeats it."),
    "alignment": Definition("alignment", "", "Looks at the source word that the target word is aligned to."),
    "coreference": Definition("coreference", "", "Looks at an earlier mention of the same thing."),
}

_EVIDENCE: dict[str, tuple[str, str, str]] = {
    "score": ("score", "", "What the label is decided on: the head carries it where the score is above the threshold."),
    "null": ("chance level", "", "The score of a head that looks at all visible keys alike."),
    "threshold": ("threshold", "", "The published threshold, carried over to texts of this length."),
    "offset": ("offset", "tokens", "The fixed offset that fits best: key position minus query position."),
    "n": ("rows counted", "rows", "Number of query rows, or texts, that the score is a mean over."),
    "low": ("95 % low", "", "Lower end of the 95 % interval of the score."),
    "high": ("95 % high", "", "Upper end of the 95 % interval of the score."),
    "q": ("q value", "", "p value of a score above chance, adjusted over all heads (Benjamini-Hochberg)."),
}

_HIGHER = "Higher = more important."
SCORES: dict[str, Definition] = {
    "score_gradient": Definition(
        "gradient score",
        "loss per gate",
        f"Mean absolute gradient of an example's loss with respect to the head's gate (Michel et al. 2019). {_HIGHER}",
    ),
    "score_gradient_signed": Definition(
        "signed gradient score",
        "loss per gate",
        "Mean of minus the gradient of an example's loss at the head's gate: below 0 the loss falls as the head goes.",
    ),
    "score_gradient_iterated": Definition(
        "iterated gradient score",
        "place",
        "When the head went, with the gradient estimated again after each removal; what stays longer counts more.",
    ),
    "score_ablation": Definition(
        "ablation score", "loss", f"Rise of the mean task loss when this head alone is removed. {_HIGHER}"
    ),
    "score_greedy_ablation": Definition(
        "greedy ablation score",
        "place",
        "When the head went, with the cheapest head removed at every step; what stays longer counts more.",
    ),
    "score_shapley": Definition(
        "Shapley value",
        "loss",
        f"Mean rise of the loss as the head goes, over random orders of all heads (Held & Yang 2023). {_HIGHER}",
    ),
    "score_fisher": Definition(
        "Fisher score", "", f"Mean squared gradient of an example's loss at the head's gate. {_HIGHER}"
    ),
    "score_magnitude": Definition("magnitude", "", f"Norm of the head's output weights; no data is read. {_HIGHER}"),
    "score_confidence": Definition(
        "confidence", "", f"Mean largest weight of a query, end-of-sentence left out (Voita et al. 2019). {_HIGHER}"
    ),
    "score_attattr": Definition(
        "attention attribution",
        "",
        f"Largest product of a weight and the loss's gradient, integrated from 0 (Hao et al. 2021). {_HIGHER}",
    ),
    "score_output_norm": Definition("output norm score", "", f"Mean norm of what the head adds. {_HIGHER}"),
    "score_lrp": Definition("relevance", "", f"Layer-wise relevance of what the head adds (Voita 2019). {_HIGHER}"),
    "score_hard_concrete": Definition(
        "hard-concrete gate", "", f"How open the learned gate of the head is (Voita et al. 2019). {_HIGHER}"
    ),
    "score_exact_k": Definition(
        "exact-k gate", "", f"Learned weight of the head among those that stay (Li et al. 2021). {_HIGHER}"
    ),
    "score_random": Definition("random score", "", "Random numbers: the control order."),
}

METRICS: dict[str, Definition] = {
    "accuracy": Definition("accuracy", "share correct", "Share of examples answered correctly; higher is better."),
    "next_token_accuracy": Definition(
        "next-token accuracy", "share correct", "Share of tokens that the model ranks first; higher is better."
    ),
    "perplexity": Definition("perplexity", "", "Exponential of the mean loss per token; lower is better."),
    "loss": Definition("loss", "nats", "Mean loss per example; lower is better."),
    "nll": Definition("loss per token", "nats", "Mean loss per token of the reference translation; lower is better."),
    "bleu": Definition("BLEU", "points", "Corpus BLEU by sacrebleu; higher is better."),
    "chrf": Definition("chrF", "points", "Corpus chrF2 by sacrebleu; higher is better."),
    "ter": Definition("TER", "per cent", "Translation edit rate by sacrebleu; lower is better."),
    "empty_outputs": Definition(
        "empty outputs", "share", "Share of translations that are empty although their source is not; lower is better."
    ),
    "unfinished": Definition(
        "unfinished outputs", "share", "Share of translations that the length limit cut off; lower is better."
    ),
    "length_ratio": Definition(
        "length ratio", "", "Length of the translations over that of the references; best at 1."
    ),
}

BOUNDS: dict[str, tuple[float, float]] = {  # values that a metric cannot leave
    "accuracy": (0.0, 1.0),
    "next_token_accuracy": (0.0, 1.0),
    "bleu": (0.0, 100.0),
    "chrf": (0.0, 100.0),
    "empty_outputs": (0.0, 1.0),
    "unfinished": (0.0, 1.0),
}

SWEEP: dict[str, Definition] = {
    "strategy": Definition("order", "", "Whose order decides which heads go first: a score, random, or label:<name>."),
    "ablation": Definition("ablation", "", "What takes the place of a removed head's output: zero, or its mean."),
    "seed": Definition("seed", "", "Seed of a random order; for the others, of the sweep."),
    "kinds": Definition("kinds", "", "Kinds of attention that heads were removed from."),
    "budget": Definition("budget", "", "How many heads to remove, as asked for."),
    "n_removed": Definition("removed", "heads", "Number of heads removed."),
    "n_heads": Definition("of", "heads", "Number of heads that could be removed."),
    "metric": Definition("metric", "", "What was measured."),
    "value": Definition("value", "", "The metric with the heads removed."),
    "baseline": Definition("baseline", "", "The metric with all heads, on the same examples."),
    "drop": Definition(
        "drop", "", "How much worse than the baseline, in the metric's unit; above 0 always means worse."
    ),
    "ci_low": Definition("95 % low", "", "Lower end of the drop's 95 % interval (paired bootstrap over examples)."),
    "ci_high": Definition("95 % high", "", "Upper end of the drop's 95 % interval (paired bootstrap over examples)."),
    "n_examples": Definition("examples", "", "Number of examples that the metric is over."),
    "split": Definition("split", "", "Which half of the examples; heads are chosen on one, judged on the other."),
    "seconds": Definition("seconds", "s", "Time that the evaluation took."),
    "removed": Definition("removed", "", "The heads that are gone."),
    "run": Definition("run", "", "Key of the evaluation in the table of examples; cuts that are alike share it."),
}


def define(column: str) -> Definition:
    """The definition of any column, label or metric; a plain one for a name that is not listed."""
    if column.startswith("syntactic:") and not column.endswith(tuple(f"_{suffix}" for suffix in _EVIDENCE)):
        return _syntactic(column)
    for known in (STATISTICS, IDENTITY, LABELS, SCORES, METRICS):
        if column in known:
            return known[column]
    if column.endswith("_words"):
        base = define(column.removesuffix("_words"))
        return Definition(f"{base.title}, words", base.unit, f"{base.text} Over word queries alone.")
    if column.startswith("score_") and ":" in column:  # a variant
        base = define(column.partition(":")[0])
        return Definition(f"{base.title} ({_spaced(column.partition(':')[2])})", base.unit, base.text)
    if column.startswith("score_"):
        return Definition(f"{_spaced(column[6:])} score", "", f"Importance of the head. {_HIGHER}")
    stem, _, suffix = column.rpartition("_")
    if suffix == "drop" and stem in METRICS:  # of single heads
        known = METRICS[stem]
        return Definition(
            f"drop of {known.title} without the head",
            known.unit,
            "How much worse the metric is with this head alone removed.",
        )
    if stem and suffix in _EVIDENCE:
        title, unit, text = _EVIDENCE[suffix]
        return Definition(f"{define(stem).title}: {title}", unit, text)
    return Definition(_spaced(column), "", "")


def lower_is_better(metric: str) -> bool:
    """Whether a metric improves by falling; False for one that is not known."""
    return metric in METRICS and "lower is better" in METRICS[metric].text


def _syntactic(label: str) -> Definition:
    """`syntactic:det:dependent-head`: the relation, and which of its two words looks at the other."""
    _, relation, way = [*label.split(":"), "", ""][:3]
    start, _, end = way.partition("-")
    return Definition(
        f"{relation}, {start} to {end}".rstrip(", "), "", f"The {start} of a {relation} relation looks at its {end}."
    )


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def evidence(suffix: str) -> Definition:
    """What a column `<label>_<suffix>` says about its label."""
    return Definition(*_EVIDENCE[suffix])


EVIDENCE_SUFFIXES = tuple(_EVIDENCE)
