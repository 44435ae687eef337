"""Mean over tokens of the head's largest attention weight, special tokens left aside (Voita et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.scores.context import ScoreContext
from headlab.scores.measures.means import mean_over_examples
from headlab.scores.score import Score, Scores


@dataclass(frozen=True)
class Confidence(Score):
    """Mean of max_j a_ij over word tokens i, (heads,), 0 to 1; j runs over keys that the tokenizer did not add.

    The paper leaves EOS aside, since it is no word; here every special token ([CLS], [SEP], BOS, EOS) is, as query and
    as key. Weights are not renormalised. It needs no loss, and says nothing about the task but its texts. Beside it
    the standard error over examples. Raises DataError where the split has no examples, UnsupportedModelError where
    attention cannot be seen.
    """

    name = "confidence"
    title = "confidence"
    text = "Mean largest weight of a query, end-of-sentence left out (Voita et al. 2019); higher = more important."
    definition = "mean over word tokens i of max_j a_ij, j over word tokens"
    source = "Voita et al. 2019"

    def __call__(self, context: ScoreContext) -> Scores:
        from headlab.scores.measures.peaks import word_peaks

        return mean_over_examples(context, lambda batch: word_peaks(context.heads.subject, batch), "attention weights")
