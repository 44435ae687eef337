"""Learned weight of the head where exactly K heads may stay (differentiable subset pruning, Li et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.scores.context import ScoreContext
from headlab.scores.gates.settings import COLD, HOT, GateScore
from headlab.scores.score import Scores


@dataclass(frozen=True)
class ExactK(GateScore):
    """Weights after training, (heads,), without unit: the `keep` largest are the subset that was learned.

    Without `keep` half of the heads stay. Gates are drawn by Gumbel soft top-K whose temperature falls from `hot` to
    `cold`; with `straight_through` each step sees hard gates. `train="all"` trains the model's weights along and puts
    them back. A closed gate is 0, so this is about zero ablation. Raises DataError where the split has no examples,
    UsageError for a `keep` that the model cannot have.
    """

    name = "exact_k"
    title = "exact-k gate"
    text = "Learned weight of the head among those that stay (Li et al. 2021); higher = more important."
    definition = "w_h after training gates of which K are open on the task's mean loss"
    source = "Li et al. 2021"

    keep: int | None = None
    hot: float = HOT
    cold: float = COLD
    straight_through: bool = False

    def __call__(self, context: ScoreContext) -> Scores:
        from headlab.scores.gates.exact_k import ExactKGates
        from headlab.scores.gates.training import trained_gates

        n = len(context.heads.index)
        keep = max(1, n // 2) if self.keep is None else self.keep
        gates = ExactKGates(n, keep, hot=self.hot, cold=self.cold, straight_through=self.straight_through)
        with trained_gates(context.heads, context.task, gates, self.training(context), context.progress) as learned:
            return Scores(learned.worth)
