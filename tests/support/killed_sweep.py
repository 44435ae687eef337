"""A sweep slow enough to be killed: `python -m tests.support.killed_sweep RUN SECONDS_PER_MASK OUT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pandas as pd

from headlab.pruning.orderings import order
from headlab.pruning.sweep import sweep
from headlab.scores import score
from tests.support.planted_seven import PlantedTask, SevenHeads, planted


class SlowTask(PlantedTask):
    def __init__(self, model: SevenHeads, pause: float) -> None:
        super().__init__(model, n=200)
        self.pause = pause

    def evaluate(self, split="all", progress=None):
        time.sleep(self.pause)
        return super().evaluate(split)


def run_sweep(run: str | Path | None, pause: float = 0.0) -> tuple[pd.DataFrame, int]:
    """The table, and how many evaluations this call needed."""
    heads, quick = planted(n=200)
    task = SlowTask(heads.model, pause)
    orderings = [order(score(name, heads, quick)) for name in ("gradient", "ablation")]
    table = sweep(heads, task, orderings, "0,1,2,3,4,5", ablation="mean", run=run)
    return table, task.evaluations


if __name__ == "__main__":
    table, _ = run_sweep(sys.argv[1], float(sys.argv[2]))
    table.to_parquet(sys.argv[3])
