"""Looks from a mention to an earlier mention of the same, more often than the nearest earlier mention is one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headlab.labels.inputs.context import InputContext
from headlab.labels.inputs.word_pairs import Instance, as_extra, lost_words
from headlab.labels.label import Label, LabelFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headlab.models.texts.batch import Batch
    from headlab.models.texts.mentions import Document
    from headlab.models.texts.words import Pieces

LIMIT = 128  # tokens of a document, as in Clark et al.
BATCH = 16


@dataclass(frozen=True)
class Mentions:
    """The documents of a mention file, cut to 128 tokens."""

    path: str

    def batches(self, context: InputContext) -> list[Batch]:
        """Batches of documents that have a mention with an antecedent within the limit."""
        from headlab.models.texts.mentions import read_mentions
        from headlab.models.texts.words import word_batch

        documents = read_mentions(self.path)
        texts = self._texts(context, documents)
        instances = [
            one
            for number, document in enumerate(documents)
            for one in _instances(number, document, set(texts[number].words))
        ]
        order = sorted({one.text for one in instances}, key=lambda number: len(texts[number].ids))
        groups = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        return [
            word_batch(
                context.checkpoint,
                [texts[number] for number in group],
                group,
                **as_extra(instances, group, ["antecedent"]),
            )
            for group in groups
        ]

    def lost(self, context: InputContext) -> dict[str, int]:
        """How many documents and words the limit cut, and how many words have no piece of their own."""
        from headlab.models.texts.mentions import read_mentions

        return lost_words(self._texts(context, read_mentions(self.path)))

    def _texts(self, context: InputContext, documents: Sequence[Document]) -> list[Pieces]:
        from headlab.models.texts.words import pieces_of

        limit = min(LIMIT, context.checkpoint.max_length or LIMIT)
        return [pieces_of(context.checkpoint, document.text, max_length=limit) for document in documents]


def _instances(number: int, document: Document, seen: set[int]) -> list[Instance]:
    """Mentions with an antecedent; the baseline is the nearest earlier mention of anything."""
    every = sorted({head for cluster in document.clusters for head in cluster if head in seen})
    found = []
    for cluster in document.clusters:
        heads = [head for head in cluster if head in seen]
        for place, head in enumerate(heads[1:], 1):
            nearest = max(other for other in every if other < head)
            found.append(Instance("antecedent", number, head, tuple(heads[:place]), nearest in heads[:place]))
    return found


def labels(source: str | Path, which: str = "") -> list[Label]:
    """The label for the documents of a mention file; DataError where it cannot be read."""
    from headlab.models.texts.mentions import read_mentions

    read_mentions(source)
    return [FAMILY.member(input=Mentions(str(source)))]


FAMILY = LabelFamily(
    name="coreference",
    title="coreference",
    text="Looks at an earlier mention of the same thing.",
    letter="F",
    colour="#228833",
    statistic="word_pairs",
    threshold=0.1,
    published_chance=None,
    chance="nearest earlier mention",
    margin=0.1,
    definition="share of mentions with an antecedent whose head word has its largest weight among the other words "
    "on the head word of one of its antecedents; 10 points above taking the nearest earlier mention; documents of "
    "at most 128 tokens, those with odd numbers; and the same on the even ones",
    source="Clark et al. 2019 (1906.04341), section 5 and table 2; the 10 points are Voita's rule for syntax",
    pair="antecedent",
    needs="mentions",
    labels=labels,
)
