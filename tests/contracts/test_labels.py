"""Every built-in label follows the contract, and each rule catches a label that breaks it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import pytest
import torch

from headlab.labels import LABELS, KeyClass, Label, LabelFamily, OneKey, Pairs
from headlab.labels.inputs.context import InputContext
from headlab.testing import check_label
from headlab.testing.examples import random_texts, text_batch

SECOND = Label(
    name="second_token",
    title="second token",
    text="Looks at the second token of the text.",
    letter="2",
    colour="#123456",
    statistic="target",
    threshold=0.5,
    published_chance=0.1,
    definition="mean attention to the second token above .5",
    source="ours",
    target=KeyClass(lambda scene: scene.keys.valid & (scene.positions(scene.keys) == 1)),
)


@pytest.mark.parametrize("name", LABELS.built_in())
def test_built_in_labels_follow_the_contract(name: str) -> None:
    check_label(LABELS.load(name))


def test_a_label_of_ones_own_follows_the_contract() -> None:
    check_label(SECOND)


@dataclass
class Unhashable:
    def batches(self, context: InputContext) -> list:
        return []


@dataclass(frozen=True)
class Trains:
    """An input that leaves the model in training mode."""

    def batches(self, context: InputContext) -> list:
        context.model.train()
        return [text_batch(random_texts())]


def by_row(scene, rows):
    """Marks the first key in the first text of a batch only."""
    marked = torch.zeros(len(scene.keys.ids), scene.queries.ids.shape[1], scene.keys.ids.shape[1], dtype=torch.bool)
    marked[0, :, 0] = True
    return marked[:, rows]


def at_the_start_of_a_block(scene, rows):
    """Marks whatever the first query of a block sees."""
    marked = scene.keys.valid[:, None].repeat(1, rows.stop - rows.start, 1)
    marked[:, 1:] = False
    return marked


CALLS = count()


def by_call(scene, rows):
    """Marks the first key, later the second."""
    return (scene.positions(scene.keys) == (next(CALLS) > 6))[:, None] & scene.keys.valid[:, None]


BROKEN = {
    "has no title": replace(SECOND, title=""),
    "has no text": replace(SECOND, text=" "),
    "is no sentence": replace(SECOND, text="Looks at the second token"),
    "has no definition": replace(SECOND, definition=""),
    "has no source": replace(SECOND, source=""),
    "no name of letters": replace(SECOND, name="second token!"),
    "a letter or a colour, but not both": replace(SECOND, colour=""),
    "more than one letter": replace(SECOND, letter="2nd"),
    "not written #RRGGBB": replace(SECOND, colour="red"),
    "ends with ZeroDivisionError": replace(SECOND, target=KeyClass(lambda scene: 1 / 0)),
    "a statistic that does not exist": replace(SECOND, statistic="entropie"),
    "about a target and has none": replace(SECOND, target=None),
    "not as mass or argmax": replace(SECOND, reading="largest"),
    "brings no input": replace(SECOND, statistic="word_pairs"),
    "outside 0 .. 1": replace(SECOND, published_chance=1.5),
    "reaches by chance": replace(SECOND, threshold=0.05),
    "cannot be hashed": replace(SECOND, input=Unhashable()),
    "does not say which file": LabelFamily(**{**vars(SECOND), "target": None, "statistic": "word_pairs"}),
    "not bool of": replace(SECOND, target=KeyClass(lambda scene: scene.positions(scene.keys).float())),
    "differs between a block of queries and all": replace(SECOND, target=Pairs(at_the_start_of_a_block)),
    "leave the model as it found it: training flags": replace(SECOND, input=Trains()),
    "another answer for the same texts": replace(SECOND, target=Pairs(by_call)),
    "depends on how texts are batched": replace(SECOND, target=Pairs(by_row)),
    "counts padding": replace(
        SECOND,
        target=OneKey(lambda scene: torch.full_like(scene.queries.ids, 1 + (scene.keys.ids.shape[1] > 12))),
    ),
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_label_is_caught(says: str) -> None:
    with pytest.raises(AssertionError, match=says.replace("(", r"\(")):
        check_label(BROKEN[says])


def test_what_is_no_label_is_caught() -> None:
    with pytest.raises(AssertionError, match="is no headlab.Label"):
        check_label("induction")  # type: ignore[arg-type]
