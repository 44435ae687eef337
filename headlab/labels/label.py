"""What a label is: a statistic, a threshold, a chance level, and what people should know about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headlab.base.errors import UsageError
from headlab.labels.inputs.context import Input
from headlab.labels.scene import KeyClass, Scene, Target

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from headlab.models.texts.batch import Tokens

PERMUTED = "permutation of positions: the mean over all orders of the visible keys"
BEST_OFFSET = "best fixed offset, learned on even texts"
UNIFORM = "uniform attention"


@dataclass(frozen=True)
class Label:
    """A head carries the label where its `statistic` is above `threshold`.

    `statistic` is a column of the head table; `offset_mass` or `offset_hits` for the best fixed offset; `target` for
    what the head has on `target`: as `reading`, its mean attention there ("mass"), or the share of queries whose
    largest weight is there ("argmax"), special tokens or the query itself (`exclude`) left out before; `word_pairs`
    for arg max hits between words, named `pair`, that `input` brings along; `copying` for the OV circuit.

    `published_chance` is what a uniform head scores on texts like those of the source; None where the statistic is
    already relative to it. With `margin` the threshold is the chance level plus that, and `threshold` is not read.
    `input` makes the label's own texts; None reads the given ones. `keys` is the class of keys whose share of the
    contributions (weight times length of the transformed value) is shown beside the label.

    On pages a label stands with its `title` (a few words), its `text` (a sentence), its `letter` and its `colour`.
    """

    name: str
    statistic: str
    threshold: float
    published_chance: float | None
    definition: str
    source: str
    title: str = ""
    text: str = ""
    letter: str = ""
    colour: str = ""  # #RRGGBB
    chance: str = ""  # what `<label>_null` is, in words, where it is not what `null` finds
    target: Target | None = None
    reading: str = "mass"
    exclude: tuple[str, ...] = ()
    input: Input | None = None
    pair: str | None = None
    beside: tuple[str, ...] = ()  # (sure, possible) pairs: the alignment error rate is shown too
    margin: float | None = None
    keys: KeyClass | None = None
    by_text: bool = False  # the share of texts on which the statistic is above the threshold is shown too
    frequencies: bool = False  # needs the token frequencies of all texts
    general: bool = False  # says less than others that a head may carry with it: never comes first beside those
    alone_but: tuple[str, ...] | None = None  # not carried beside any other label of the run, these left aside

    @property
    def null(self) -> str:
        """What `<label>_null` is, in words."""
        if self.chance:
            return self.chance
        if self.statistic == "word_pairs":
            return BEST_OFFSET
        return UNIFORM if self.published_chance is None else PERMUTED

    def on_target(self, queries: Tokens, keys: Tokens, rows: slice | None = None, **extra: Any) -> Tensor:
        """Which keys the label is about: bool (batch, query, key), or broadcast to it, for the queries in `rows`.

        `queries` and `keys` are sides of a batch, the same one for self-attention; `extra` is what the batch carries
        beside its tokens. Raises UsageError for a label without a target.
        """
        if self.target is None:
            raise UsageError(f"The label {self.name} has no target.", f"It reads {self.statistic} of the head table.")
        return self.target.block(Scene(queries, keys, extra=extra), rows or slice(0, queries.ids.shape[1]))

    def threshold_at(self, chance: np.ndarray) -> np.ndarray:
        """The threshold on texts on which a uniform head scores `chance`, shaped alike."""
        import numpy as np

        if self.margin is not None:
            return chance + self.margin
        if self.published_chance is None:
            return np.full_like(chance, self.threshold)
        place = (self.threshold - self.published_chance) / (1 - self.published_chance)
        return chance + (1 - chance) * place


@dataclass(frozen=True)
class LabelFamily(Label):
    """Labels that a file brings along: `labels(file, which)` are its members, all of them for an empty `which`.

    Its fields are those of its members as far as they are known without the file: `{relation}` in a text stands for
    what is not. `needs` is the option that names the file (`--conllu`), and `describe(which)` the fields of a member
    that follow from its name, which is `<family>:<which>`.
    """

    needs: str = ""
    labels: Callable[[Any, str], Sequence[Label]] | None = None
    describe: Callable[[str], Mapping[str, Any]] | None = None

    def member(self, which: str = "", **given: Any) -> Label:
        """The label `<family>:<which>` (the family's name for an empty `which`) with the fields that are given."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(Label)}
        fields["name"] = f"{self.name}:{which}" if which else self.name
        described = self.describe(which) if self.describe is not None and which else {}
        return Label(**{**fields, **described, **given})
