"""Looks, when a word is written, at the word that it translates; for attention to the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headlab.base.errors import UsageError
from headlab.labels.inputs.context import InputContext
from headlab.labels.inputs.word_pairs import Instance, as_extra, lost_words, with_offsets
from headlab.labels.label import BEST_OFFSET, Label, LabelFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headlab.models.texts.alignments import AlignedPair
    from headlab.models.texts.batch import Batch
    from headlab.models.texts.words import Pieces

BATCH = 16
# Word, each sure link, and each target word with all possible ones: the last two give the alignment error rate.
NAMES = ("word", "sure", "possible")


@dataclass(frozen=True)
class GoldAlignments:
    """Sentence pairs with gold alignments, from files of sources, targets and links in Pharaoh format."""

    source: str
    target: str
    gold: str

    def pairs(self) -> list[AlignedPair]:
        """All sentence pairs."""
        from headlab.models.texts.alignments import read_alignments

        return read_alignments(self.source, self.target, self.gold)

    def batches(self, context: InputContext) -> list[Batch]:
        """Batches of pairs; nothing for a model without an encoder and a decoder."""
        from headlab.models.texts.words import pair_batch

        if not getattr(context.checkpoint, "is_encoder_decoder", False):
            return []
        pairs = self.pairs()
        sources, targets = self._texts(context, pairs)
        instances: list[Instance] = []
        for number, pair in enumerate(pairs):
            instances += _instances(number, pair, set(sources[number].words), set(targets[number].words))
        judged, _ = with_offsets(instances)
        order = sorted(range(len(pairs)), key=lambda number: len(sources[number].ids))
        groups = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        return [
            pair_batch(
                context.checkpoint,
                [sources[n] for n in group],
                [targets[n] for n in group],
                group,
                **as_extra(judged, group, NAMES),
            )
            for group in groups
        ]

    def lost(self, context: InputContext) -> dict[str, int]:
        """How many sentences and words of both sides the limit cut, and how many words have no piece of their own."""
        sources, targets = self._texts(context, self.pairs())
        return lost_words([*sources, *targets])

    def _texts(self, context: InputContext, pairs: Sequence[AlignedPair]) -> tuple[list[Pieces], list[Pieces]]:
        from headlab.models.texts.words import pieces_of

        sources = [pieces_of(context.checkpoint, pair.source) for pair in pairs]
        return sources, [pieces_of(context.checkpoint, pair.target, target=True) for pair in pairs]


def _instances(number: int, pair: AlignedPair, sources: set[int], targets: set[int]) -> list[Instance]:
    found = []
    for word in sorted(targets - {-1}):
        sure = tuple(sorted(s for s, t in pair.sure if t == word and s in sources))
        possible = tuple(sorted(s for s, t in pair.possible if t == word and s in sources))
        found += [Instance("word", number, word, sure)] if sure else []
        found += [Instance("sure", number, word, (link,)) for link in sure]
        found.append(Instance("possible", number, word, possible or (-2,)))  # -2: no word, so never hit
    return found


def labels(source: Sequence[str | Path], which: str = "") -> list[Label]:
    """The label for (source, target, gold) files; DataError where they cannot be read."""
    if len(source) != 3:
        raise UsageError(f"{len(source)} files were given for alignments.", "Give three: source, target, gold links.")
    files = GoldAlignments(*(str(path) for path in source))
    files.pairs()
    return [FAMILY.member(input=files)]


FAMILY = LabelFamily(
    name="alignment",
    title="alignment",
    text="Looks at the source word that the target word is aligned to.",
    letter="A",
    colour="#4477AA",
    statistic="word_pairs",
    threshold=0.1,
    published_chance=None,
    chance=BEST_OFFSET,
    margin=0.1,
    definition="share of target words with a sure link whose largest weight, when they are predicted, is on the "
    "pieces of a source word linked to them, 10 points above the best fixed offset; on odd sentence pairs, and the "
    "same on the even ones; alignment_aer is the error rate of the arg max links",
    source="alignment error rate of Och and Ney 2003; the 10 points are Voita's rule for syntax",
    pair="word",
    beside=("sure", "possible"),
    needs="alignments",
    labels=labels,
)
