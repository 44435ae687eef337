"""Probability that the head's learned gate is open, when open gates cost a penalty (Voita et al. 2019)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from headlab.scores.context import ScoreContext
from headlab.scores.gates.settings import GateScore
from headlab.scores.score import Scores


@dataclass(frozen=True)
class HardConcrete(GateScore):
    """P(open) of every gate after training, (heads,), 0 to 1.

    The loss is the task's mean loss plus `penalty` times the expected number of open gates (constants of Voita's
    code). Without `penalty` it is the one at which removing every head would just pay (the rise of the loss over the
    number of heads). `train="all"` trains the model's weights along and puts them back. A closed gate is 0, so this
    is about zero ablation. One penalty gives one trade-off: `headlab.pruning.ladder` climbs through several. Where
    every gate closes, a warning says so. Raises DataError where the split has no examples.
    """

    name = "hard_concrete"
    title = "hard-concrete gate"
    text = "How open the learned gate of the head is (Voita et al. 2019); higher = more important."
    definition = "P(g_h > 0) after training gates on mean L + penalty * expected number of open gates"
    source = "Voita et al. 2019; Louizos et al. 2018"

    penalty: float | None = None

    def __call__(self, context: ScoreContext) -> Scores:
        from headlab.scores.gates.hard_concrete import HardConcreteGates, break_even
        from headlab.scores.gates.training import trained_gates

        how = self.training(context)
        how.check()
        penalty = break_even(context.heads, context.task, context.split) if self.penalty is None else self.penalty
        gates = HardConcreteGates(len(context.heads.index), penalty)
        with trained_gates(context.heads, context.task, gates, how, context.progress) as learned:
            if learned.n_open == 0:  # a result, but seldom the one that was wanted
                warnings.warn(f"Every gate closed. Take a penalty below {penalty:.3g}.", stacklevel=3)
            return Scores(learned.worth)
