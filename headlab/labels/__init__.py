"""What a head does: one file per label, each a statistic, a threshold and a chance level.

A published threshold was chosen on texts of some length and some kind of attention. headlab keeps its meaning on other
texts by keeping its place between chance and certainty: with c the score of a head that looks at all visible keys
alike, and c0 that score on texts like the published ones, the threshold t0 becomes c + (1 - c) (t0 - c0) / (1 - c0).
At the published length this is the published threshold.

The chance level `<label>_null` is, for every label of a place, what permuting positions gives: the mean of the head's
own score over all orders in which its weights could lie on the keys that each query sees. It is taken exactly, not by
drawing: under permutation each visible key is as likely as any other, so the mean is that of a uniform head, whatever
the head. Labels that join words have a harder one, the best fixed offset (coreference: the nearest mention); `broad`
has uniform attention itself, as the entropy of a row stays the same in any order. `Label.null` says which. The control
of random weights is a model, not a column: headlab.models.random_weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headlab.base.errors import UsageError
from headlab.base.registry import Registry
from headlab.labels.label import Label as Label
from headlab.labels.label import LabelFamily as LabelFamily
from headlab.labels.scene import KeyClass as KeyClass
from headlab.labels.scene import OneKey as OneKey
from headlab.labels.scene import Pairs as Pairs
from headlab.labels.scene import Scene as Scene

LABELS: Registry[Label] = Registry(
    "headlab.labels", "label", lambda plugin: isinstance(plugin, Label), besides=("label", "scene", "evidence")
)


def load_label(name: str | Label) -> Label:
    """The label of that name; a Label itself is returned as it is.

    Raises UsageError with the closest name and the list where there is none, and for a family of labels that needs a
    file (`syntactic`), which load_labels takes.
    """
    label = name if isinstance(name, Label) else LABELS.load(name.partition(":")[0])
    if isinstance(label, LabelFamily):
        shown = label.name if isinstance(name, Label) else name
        raise UsageError(
            f"The label {shown!r} reads a file of its own ({label.needs}), and none is given.",
            f"headlab dump: --{label.needs} FILE; Python: load_labels([{shown!r}], {label.needs}=FILE).",
        )
    return label


def load_labels(names: Sequence[str | Label], **files: Any) -> list[Label]:
    """Labels by name, for Heads.observe: those that read a file of their own are given it here.

    `syntactic` (every relation, both directions), `syntactic:det` or `syntactic:det:dependent-head` with conllu=FILE,
    `coreference` with mentions=FILE, `alignment` with alignments=(source, target, gold) files. A family comes as one
    label for each of its members; a Label in `names` stays as it is; each label comes once.

    Raises UsageError for unknown names and for a label whose file is not given, DataError for files it cannot read.
    """
    found: list[Label] = []
    for name in names:
        base, _, which = ("", "", "") if isinstance(name, Label) else name.partition(":")
        label = name if isinstance(name, Label) else LABELS.load(base)
        file = files.get(label.needs) if isinstance(label, LabelFamily) else None
        if isinstance(label, LabelFamily) and label.labels is not None and file is not None:
            found += label.labels(file, which)
        else:
            found.append(load_label(name))
    return list(dict.fromkeys(found))


def default_labels() -> list[str]:
    """The labels that read any text: those without an input or a file of their own."""
    return [
        name for name, label in LABELS.working().items() if label.input is None and not isinstance(label, LabelFamily)
    ]


def families() -> dict[str, LabelFamily]:
    """The families of labels, by name: those that need a file."""
    return {name: label for name, label in LABELS.working().items() if isinstance(label, LabelFamily)}


def described(name: str) -> Label | None:
    """The label of a column, for its title, text, letter and colour; a member of a family without its file.

    None for a name that is not known.
    """
    base, _, which = name.partition(":")
    if base not in LABELS.names():
        return None
    label = LABELS.load(base)
    return label.member(which) if isinstance(label, LabelFamily) else label
