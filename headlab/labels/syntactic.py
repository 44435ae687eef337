"""Joins the two words of a grammatical relation: as a parser of it, better than the best fixed offset."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headlab.base.errors import unknown_name
from headlab.labels.inputs.context import InputContext
from headlab.labels.inputs.word_pairs import Instance, as_extra, lost_words, with_offsets
from headlab.labels.label import BEST_OFFSET, Label, LabelFamily

if TYPE_CHECKING:
    from headlab.models.texts.batch import Batch
    from headlab.models.texts.treebanks import Parsed
    from headlab.models.texts.words import Pieces

DIRECTIONS = ("dependent-head", "head-dependent")
BATCH = 32


@lru_cache(maxsize=4)
def _sentences(path: str, changed: float, limit: int | None) -> tuple[Parsed, ...]:
    from headlab.models.texts.treebanks import read_conllu

    return tuple(read_conllu(path)[:limit])


@dataclass(frozen=True)
class Treebank:
    """The sentences of a CoNLL-U file; `limit` takes the first ones, `first_piece` is Clark's shipped variant.

    Sentences beyond `max_length` tokens (else the model's limit) are cut at a word's end.
    """

    path: str
    limit: int | None = None
    max_length: int | None = None
    first_piece: bool = False
    subtypes: bool = False  # keep nsubj:pass apart from nsubj

    def sentences(self) -> tuple[Parsed, ...]:
        """All sentences; the file is read once."""
        return _sentences(self.path, self._changed(), self.limit)

    def relations(self) -> list[str]:
        """The relations between two words of the file, most frequent first."""
        return list(_relations(self, self._changed()))

    def batches(self, context: InputContext) -> list[Batch]:
        """Batches of sentences, by length; words without a piece of their own take their relations with them."""
        from headlab.models.texts.words import word_batch

        texts = self._texts(context)
        seen = [set(text.words) for text in texts]
        kept = [
            one
            for one in self._instances(context.causal)
            if one.word in seen[one.text] and set(one.targets) <= seen[one.text]
        ]
        judged, _ = with_offsets(kept)
        names = sorted({f"{relation}:{way}" for relation in self.relations() for way in DIRECTIONS})
        by_text: dict[int, list[Instance]] = {}
        for one in judged:
            by_text.setdefault(one.text, []).append(one)
        order = sorted(by_text, key=lambda number: len(texts[number].ids))
        groups = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        return [
            word_batch(
                context.checkpoint,
                [texts[number] for number in group],
                group,
                **as_extra((one for number in group for one in by_text[number]), group, names),
                first_piece=self.first_piece,
            )
            for group in groups
        ]

    def lost(self, context: InputContext) -> dict[str, int]:
        """How many sentences and words the limit cut, and how many words have no piece of their own."""
        return lost_words(self._texts(context))

    def _changed(self) -> float:
        return Path(self.path).stat().st_mtime if Path(self.path).exists() else 0.0

    def _texts(self, context: InputContext) -> list[Pieces]:
        from headlab.models.texts.words import pieces_of

        return [pieces_of(context.checkpoint, each, max_length=self.max_length) for each in self.sentences()]

    def _instances(self, causal: bool) -> list[Instance]:
        """Both directions of every relation; in a decoder those whose target comes before."""
        found = []
        for number, sentence in enumerate(self.sentences()):
            for dependent, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True)):
                if head is None or head < 0 or not relation:
                    continue
                name = relation if self.subtypes else relation.partition(":")[0]
                found += [
                    Instance(f"{name}:dependent-head", number, dependent, (head,)),
                    Instance(f"{name}:head-dependent", number, head, (dependent,)),
                ]
        return [one for one in found if not causal or one.targets[0] < one.word]


@lru_cache(maxsize=4)
def _relations(treebank: Treebank, changed: float) -> tuple[str, ...]:
    """Counted once, not for each label that asks whether its relation is there."""
    counts = Counter(one.name.rpartition(":")[0] for one in treebank._instances(causal=False))
    return tuple(name for name, _ in counts.most_common())


def labels(source: str | Path | Treebank, which: str = "") -> list[Label]:
    """One label for each relation and direction; `which` is `det` or `det:dependent-head`, empty for all.

    Raises DataError where the file cannot be read, UsageError for a relation that is not in it.
    """
    treebank = source if isinstance(source, Treebank) else Treebank(str(source))
    relations = treebank.relations()
    relation, direction = which, ""
    for way in DIRECTIONS:
        if which.endswith(f":{way}"):
            relation, direction = which.removesuffix(f":{way}"), way
    if relation and relation not in relations:
        raise unknown_name("relation", relation, relations)
    names = [relation] if relation else relations
    ways = [direction] if direction else DIRECTIONS
    return [FAMILY.member(f"{name}:{way}", input=treebank, pair=f"{name}:{way}") for name in names for way in ways]


def describe(which: str) -> dict[str, str]:
    """What is known of `det:dependent-head` from its name: which of the two words looks at the other."""
    relation, way = [*which.rsplit(":", 1), ""][:2] if which.endswith(DIRECTIONS) else [which, ""]
    looks, _, at = way.partition("-")
    if not way:
        return {"title": relation, "text": f"Joins the two words of a {relation} relation."}
    return {
        "title": f"{relation}, {looks} to {at}",
        "text": f"The {looks} of a {relation} relation looks at its {at}.",
        "definition": FAMILY.definition.format(relation=relation, looks=looks, at=at),
    }


FAMILY = LabelFamily(
    name="syntactic",
    title="syntactic relation",
    text="One word of a grammatical relation looks at the other.",
    statistic="word_pairs",
    threshold=0.1,
    published_chance=None,
    chance=BEST_OFFSET,
    margin=0.1,
    definition="share of {relation} relations in which the {looks}'s largest weight among the other words is on the "
    "{at}, on sentences with odd numbers, 10 points above the best fixed offset, which was learned on those with even "
    "numbers; and the same on the even ones",
    source="Voita et al. 2019 (1905.09418): 10 points above the baseline; words after Clark et al. 2019 (1906.04341), "
    "whose head-to-dependent is the arg max over the other words of what looks at the dependent, where this is the "
    "head's own arg max, as in Voita et al.",
    needs="conllu",
    labels=labels,
    describe=describe,
)
