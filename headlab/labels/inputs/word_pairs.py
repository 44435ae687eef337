"""Pairs of words that a label expects a head to join, as a batch carries them, and the best fixed offset for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headlab.models.texts.words import Pieces


@dataclass(frozen=True)
class Instance:
    """One word that should look at one of `targets`; `baseline` says whether the control would hit."""

    name: str
    text: int
    word: int
    targets: tuple[int, ...]
    baseline: bool = False


def with_offsets(instances: Sequence[Instance]) -> tuple[list[Instance], dict[str, int]]:
    """Each instance with the hit of the best fixed offset for its name, learned on the texts with even numbers."""
    counts: dict[str, Counter[int]] = {}
    for one in instances:
        if one.text % 2 == 0:
            counts.setdefault(one.name, Counter()).update({target - one.word for target in one.targets})
    best = {
        name: min(offsets, key=lambda offset: (-offsets[offset], abs(offset), offset))
        for name, offsets in counts.items()
    }
    judged = [
        Instance(
            one.name, one.text, one.word, one.targets, one.name in best and one.word + best[one.name] in one.targets
        )
        for one in instances
    ]
    return judged, best


def as_extra(instances: Iterable[Instance], texts: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """The instances of the texts of a batch as what it carries: `pairs` (pair, 4), `pair_targets`, `pair_names`."""
    import torch

    row, number = {text: i for i, text in enumerate(texts)}, {name: i for i, name in enumerate(names)}
    here = [one for one in instances if one.text in row]
    width = max((len(one.targets) for one in here), default=1)
    pairs = [[number[one.name], row[one.text], one.word, int(one.baseline)] for one in here]
    targets = [[*one.targets, *[-1] * (width - len(one.targets))] for one in here]
    return {
        "pairs": torch.tensor(pairs, dtype=torch.long).view(-1, 4),
        "pair_targets": torch.tensor(targets, dtype=torch.long).view(-1, width),
        "pair_names": list(names),
    }


def lost_words(texts: Iterable[Pieces]) -> dict[str, int]:
    """What the model's limit or the tokenizer took from texts: texts cut, words cut off, words without a piece."""
    found = {"texts_cut": 0, "words_cut": 0, "words_without_piece": 0}
    for text in texts:
        found["texts_cut"] += text.n_cut > 0
        found["words_cut"] += text.n_cut
        found["words_without_piece"] += text.n_lost
    return found
