"""The options of `headlab sweep` that train: learned gates at several prices, and fine-tuning after every cut."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.base.errors import UsageError, unknown_name
from headlab.cli.options import RunOptions, names

if TYPE_CHECKING:
    import pandas as pd

    from headlab.attention.heads import Heads
    from headlab.pruning.training import Finetuning
    from headlab.tasks import Task

TRAIN = ("none", "gates", "all")
STEPS = {"gates": 200, "all": 50}


@dataclass
class TrainOptions:
    """What a sweep trains, and how long."""

    train: Annotated[
        str,
        typer.Option(
            help="none; gates: learn which heads stay, weights frozen; all: fine-tune weights after every cut too.",
            rich_help_panel="Training",
        ),
    ] = "none"
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of a training (gates 200, all 50).", rich_help_panel="Training")
    ] = None
    penalties: Annotated[
        str | None, typer.Option(help="A,B: prices of an open gate, in units of the loss.", rich_help_panel="Training")
    ] = None
    keep: Annotated[
        str | None, typer.Option(help="A,B: learn subsets of exactly so many heads.", rich_help_panel="Training")
    ] = None

    def check(self) -> None:
        """Raise UsageError for values that cannot be, before a model is opened."""
        if self.train not in TRAIN:
            raise unknown_name("choice of what to train", self.train, TRAIN)
        given = [name for name in ("steps", "penalties", "keep") if getattr(self, name) is not None]
        if self.train == "none" and given:
            raise UsageError(f"--{given[0]} has no effect without training.", "Add --train gates or --train all.")
        self.levels()

    def levels(self) -> dict[str, list[float] | None]:
        """The ladders to climb and their levels, None for the default ones; none but where they are asked for."""
        found: dict[str, list[float] | None] = {}
        for method, text in (("hard_concrete", self.penalties), ("exact_k", self.keep)):
            if text is not None:
                found[method] = _penalties(text) if method == "hard_concrete" else _sizes(text)
        return found or ({"hard_concrete": None} if self.train == "gates" else {})

    def refuse_levels(self, n_heads: int) -> None:
        """Raise UsageError for a penalty, or a number of heads to keep, that cannot be; before anything is scored."""
        from headlab.pruning.rungs import make_gates

        for method, levels in self.levels().items():
            for level in levels or ():
                make_gates(method, level, n_heads)

    def signature(self, task: Task) -> dict[str, Any]:
        """What the numbers depend on; nothing where nothing is trained, so that earlier runs are known again."""
        if self.train == "none":
            return {}
        facts = {"train": self.train, "steps": self.n_steps, "batch_size": task.options.batch_size}
        return {"training": facts}

    @property
    def n_steps(self) -> int:
        return STEPS.get(self.train, 0) if self.steps is None else self.steps

    def finetuning(self, seed: int) -> Finetuning | None:
        """What follows every cut."""
        from headlab.pruning.training import Finetuning

        return Finetuning(self.n_steps, seed=seed) if self.train == "all" else None

    def with_gates(
        self, curve: pd.DataFrame, heads: Heads, task: Task, out: Path, run: RunOptions, progress: Any, **more: Any
    ) -> pd.DataFrame:
        """The sweep's table with the rungs of the ladders below it; the gates themselves go into gates.csv."""
        import pandas as pd

        from headlab.pruning.ladder import Training, ladder
        from headlab.runs.tables import write_atomically

        made = []
        for method, levels in self.levels().items():
            progress.step(f"learning gates ({method})")
            how = Training(self.n_steps, train=self.train, per_example=True)
            made.append(ladder(heads, task, method, levels, seed=run.seed, training=how, run=out, progress=progress,
                               **more))  # fmt: skip
        if not made:
            return curve
        for one in made:
            closed = one.curve[one.curve["n_open"] == 0].drop_duplicates(["budget", "seed"])
            for row in closed.itertuples():
                print(f"Warning: every gate closed at {row.budget} (seed {row.seed}).", file=sys.stderr)
        gates = pd.concat([one.gates for one in made], ignore_index=True)
        write_atomically(out / "gates.csv", gates.to_csv(index=False))
        return pd.concat([curve, *(one.curve for one in made)], ignore_index=True)


def _penalties(text: str) -> list[float]:
    try:
        found = [float(part) for part in names(text)]
    except ValueError:
        found = []
    if not found or not all(math.isfinite(number) for number in found):
        raise UsageError(f"--penalties {text!r} is not a list of numbers.", "Write numbers: 0.002,0.01.")
    return found


def _sizes(text: str) -> list[float]:
    parts = names(text)
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--keep {text!r} is not a list of numbers of heads.", "Write whole numbers from 1: 12,24.")
    return [float(part) for part in parts]
