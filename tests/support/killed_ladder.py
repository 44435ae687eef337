"""A ladder of gates slow enough to be killed: `python -m tests.support.killed_ladder RUN SECONDS_PER_STEP OUT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from headlab.pruning.ladder import Ladder, ladder
from headlab.scores.gates.settings import Training
from tests.support.planted_seven import PlantedTask, SevenHeads, planted

LEVELS = (0.0, 0.02, 0.2)
STEPS = 12


class SlowTask(PlantedTask):
    """Counts its training steps."""

    def __init__(self, model: SevenHeads, pause: float) -> None:
        super().__init__(model, n=100)
        self.pause, self.steps = pause, 0

    def losses(self, model, batch):
        self.steps += 1
        time.sleep(self.pause)
        return super().losses(model, batch)


def climb_ladder(run: str | Path | None, pause: float = 0.0, method: str = "hard_concrete") -> tuple[Ladder, int]:
    """The ladder, and how many training steps this call needed."""
    heads, _ = planted(n=2)
    task = SlowTask(heads.model, pause)
    levels = LEVELS if method == "hard_concrete" else (2, 3, 5)
    made = ladder(heads, task, method, levels, seeds=2, training=Training(steps=STEPS, learning_rate=0.5), run=run)
    return made, task.steps


if __name__ == "__main__":
    climb_ladder(sys.argv[1], float(sys.argv[2]))[0].curve.to_parquet(sys.argv[3])
