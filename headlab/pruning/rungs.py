"""One rung of a ladder of learned gates: trained, judged with hard gates, and kept in two files of the run folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from headlab.base.errors import UsageError
from headlab.metrics import metric
from headlab.runs.evaluations import FOLDER, MaskedRun, read_run, run_key, write_run
from headlab.runs.tables import to_json, write_atomically
from headlab.scores.gates.exact_k import ExactKGates
from headlab.scores.gates.hard_concrete import HardConcreteGates
from headlab.scores.gates.training import Gates, LearnedGates, Training, trained_gates
from headlab.scores.measures.losses import batching

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Rung:
    """One training of gates and its judgement; arrays are (heads,)."""

    method: str
    level: float  # the penalty, or the number of heads that stay
    seed: int
    weights: np.ndarray  # log alpha, or the learned weight; NaN for heads without a gate
    keep: np.ndarray
    train_loss: float  # mean over the last tenth of the steps, gates drawn
    soft: dict[str, float]  # metrics with the gates at rest, which may lie between 0 and 1
    run: MaskedRun

    @property
    def n_open(self) -> int:
        return int(self.keep[~np.isnan(self.weights)].sum())


def make_gates(method: str, level: float, n: int) -> Gates:
    """Untrained gates of one level; UsageError for one that cannot be."""
    if method == "hard_concrete":
        return HardConcreteGates(n, level)
    if level != int(level):
        raise UsageError(f"{level} heads cannot be kept.", "Give a whole number.")
    return ExactKGates(n, int(level))


def evaluated(task: Task, key: str, split: str, folder: str | Path | None) -> MaskedRun:
    """The evaluation of that key: read where it is there, else made with the model as it is now, and written."""
    found = read_run(folder, key) if folder is not None else None
    if found is None:
        start = time.perf_counter()
        with contextlib.nullcontext() if folder is None else task.keeping(folder, key):
            examples = task.evaluate(split).examples
        found = MaskedRun(key, examples, time.perf_counter() - start)
        if folder is not None:
            write_run(folder, found)
    return found


def climb(
    heads: Heads, task: Task, method: str, level: float, free: np.ndarray, how: Training, split: str,
    folder: str | Path | None, progress: Progress | None,
) -> Rung:  # fmt: skip
    """Train gates at one level and judge them; read instead where the folder holds the finished rung."""
    facts = {"method": method, "level": level, "training": asdict(how), "free": free.tolist(), "split": split,
             "batching": batching(task, how.split),
             "signature": json.loads(to_json(task.signature()))}  # fmt: skip
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    path = None if folder is None else Path(folder) / FOLDER / f"{name}.json"
    found = _read_rung(folder, path)
    if found is not None:
        return found
    with trained_gates(heads, task, make_gates(method, level, int(free.sum())), free, how, progress) as learned:
        mask = learned.mask(heads)
        # Without training of weights the mask says it all, and rungs that end at the same one share an evaluation.
        own = {"rung": name} if how.train == "all" else {}
        with heads.masked(mask):
            judged = evaluated(task, run_key(mask, "zero", split, {**task.signature(), **own}), split, folder)
        with heads.gate_context(learned.resting(heads)):
            soft = _values(task, task.evaluate(split).examples)
    rung = _as_rung(method, level, how.seed, learned, soft, judged)
    if path is not None:
        facts = {name: value for name, value in vars(rung).items() if name != "run"}
        write_atomically(path, to_json({**facts, "run": judged.key}))
    return rung


def _as_rung(method: str, level: float, seed: int, learned: LearnedGates, soft: dict, judged: MaskedRun) -> Rung:
    weights = np.full(len(learned.free), np.nan)
    weights[learned.free] = learned.gates.weights.detach().numpy()
    last = learned.losses[-max(1, len(learned.losses) // 10) :]
    loss = float(np.nanmean(last)) if np.isfinite(last).any() else float("nan")
    return Rung(method, level, seed, weights, learned.keep, loss, soft, judged)


def _read_rung(folder: str | Path | None, path: Path | None) -> Rung | None:
    """A finished rung, None where there is none or where one of its two files is missing or damaged."""
    if folder is None or path is None:
        return None
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        judged = read_run(folder, facts.pop("run"))
        if judged is None:
            return None
        facts["weights"], facts["keep"] = np.array(facts["weights"], dtype=float), np.array(facts["keep"], dtype=bool)
        return Rung(**facts, run=judged)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _values(task: Task, examples: pd.DataFrame) -> dict[str, float]:
    return {name: metric(name).of({c: examples[c].to_numpy() for c in examples}) for name in task.metrics}
