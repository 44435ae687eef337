"""What every score is: settings as fields, facts as constants of the class, called with a context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from headlab.scores.context import ScoreContext


class Scores(NamedTuple):
    """Importance of every head, (heads,), and its standard errors, (heads,), where they are known."""

    values: np.ndarray
    errors: np.ndarray | None = None


@dataclass(frozen=True)
class Score:
    """A way to say what heads are worth to a task; higher = more important.

    A subclass is a frozen dataclass whose fields are its settings. `variants` gives settings names, as in
    `gradient:per-token`; where `suffix` names a field, that field takes whatever follows the colon (`label:induction`).
    """

    name: ClassVar[str]
    title: ClassVar[str]  # a few words, for pages and axes
    text: ClassVar[str]  # one sentence for people
    unit: ClassVar[str] = ""
    definition: ClassVar[str] = ""  # what is computed, as a formula
    source: ClassVar[str] = ""  # the paper
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    suffix: ClassVar[str | None] = None
    uses_journal: ClassVar[bool] = False  # whether a killed run can go on where it was
    uses_table: ClassVar[bool] = False  # whether a head table saves it a pass
    needs_gradients: ClassVar[bool] = False

    def __call__(self, context: ScoreContext) -> Scores:
        """The values of all heads, in the order of `context.heads.index`."""
        raise NotImplementedError

    @classmethod
    def settings(cls) -> list[str]:
        """The names of the settings."""
        return [field.name for field in fields(cls)]


@dataclass(frozen=True)
class RemovalScore(Score):
    """A score that removes heads; `ablation` says what takes their place, by default what the context says."""

    ablation: str | None = None

    def within(self, context: ScoreContext) -> ScoreContext:
        """The context with the score's own ablation."""
        return context if self.ablation is None else replace(context, ablation=self.ablation)


BY_ABLATION: Mapping[str, Mapping[str, Any]] = {
    name: {"ablation": name} for name in ("zero", "mean", "resample", "uniform")
}
