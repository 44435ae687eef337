"""Learned gates at several penalties or sizes, each judged with hard gates on other examples: a Pareto table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from headlab.base.errors import UsageError, unknown_name
from headlab.base.masks import HeadMask
from headlab.metrics import metric
from headlab.pruning.rungs import Rung, climb, evaluated, make_gates
from headlab.pruning.significance import paired_bootstrap
from headlab.runs.evaluations import MaskedRun, examples_table, run_key
from headlab.runs.tables import SWEEP_COLUMNS, head_names, load_table, save_table, table_path
from headlab.scores import require_one_model
from headlab.scores.gates.hard_concrete import p_one, p_open
from headlab.scores.gates.training import Training as Training  # part of what a caller of ladder needs
from headlab.scores.gates.training import break_even, gated_heads

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

METHODS = ("hard_concrete", "exact_k")
LADDER = (0.25, 0.5, 1.0, 2.0, 4.0)  # penalties, in multiples of the one at which removing every head would just pay
SHARES = (0.8, 0.6, 0.4, 0.2)  # of the heads that stay, for exact-k
Progress = Callable[[int, int, str], None]  # (steps done, steps in all, what is being done)


class Ladder(NamedTuple):
    """`curve` has a row per rung and metric, with the columns of a sweep; `gates` a row per rung and head."""

    curve: pd.DataFrame
    gates: pd.DataFrame


def ladder(
    heads: Heads,
    task: Task,
    method: str = "hard_concrete",
    levels: Iterable[float] | None = None,
    *,
    seeds: int = 3,
    seed: int = 0,
    kinds: Iterable[str] | None = None,
    training: Training | None = None,
    split: str = "report",
    run: str | Path | None = None,
    progress: Progress | None = None,
) -> Ladder:
    """Train gates at every level with several seeds on the select split, and judge the hard masks on another.

    A level is the penalty per open gate for `hard_concrete` (by default multiples of the one at which removing every
    head would just pay), the number of heads that stay for `exact_k`. `curve` has the columns of a sweep and
    `penalty` (or `keep`), `n_open`, `train_loss` and `value_soft`, the metric under the gates at rest before they are
    made hard; `gates` has log alpha, P(open), P(gate = 1) and whether the head stays. Where every gate closes, n_open
    is 0 and the row says what is left. `kinds` gives gates to heads of these kinds alone. With `training.train="all"`
    the mask is judged with the weights as trained, which are then put back.

    With `run`, a folder, each finished rung is written at once and read again by the next call, and per-example
    statistics join its `examples` table. Raises UsageError for methods, levels and splits that cannot be.
    """
    how = training or Training()
    require_one_model(heads, task)
    task.split(split)
    if seeds < 1:
        raise UsageError(
            f"{seeds} seeds train nothing.", "Ask for at least 1; 3 or more show how stable the choice is."
        )
    free = gated_heads(heads, kinds)
    asked = _levels(heads, task, method, levels, how, free)
    baseline = _baseline(heads, task, split, run)
    plan = [(level, own) for level in asked for own in range(seed, seed + seeds)]
    rungs = []
    for place, (level, own) in enumerate(plan):
        report = _within(progress, place, len(plan), f"{method} {level:.3g}, seed {own}")
        rungs.append(climb(heads, task, method, level, free, replace(how, seed=own), split, run, report))
    if run is not None:
        _keep_examples(run, [baseline, *(rung.run for rung in rungs)])
    return Ladder(_curve(heads, task, baseline, rungs, split, seed), _gate_table(heads, rungs))


def _levels(heads: Heads, task: Task, method: str, levels: Any, how: Training, free: np.ndarray) -> list[float]:
    """The levels asked for, each tried in the making of gates, so that a wrong one is refused before any training."""
    if method not in METHODS:
        raise unknown_name("method of learning gates", method, METHODS)
    how.check()
    n = int(free.sum())
    if levels is not None:
        found = list(dict.fromkeys(float(level) for level in levels))
    elif method == "exact_k":
        found = [float(max(1, round(share * n))) for share in SHARES]
    else:
        price = break_even(heads, task, how.split, free)
        found = [float(f"{share * price:.3g}") for share in LADDER]  # short numbers, as they name the rungs
    if not found:
        raise UsageError("There is no level to train gates at.", "Give penalties, or numbers of heads that stay.")
    for level in found:
        make_gates(method, level, n)
    return found


def _baseline(heads: Heads, task: Task, split: str, folder: str | Path | None) -> MaskedRun:
    key = run_key(HeadMask.full(heads), "zero", split, task.signature())
    return evaluated(task, key, split, folder)


def _curve(heads: Heads, task: Task, baseline: MaskedRun, rungs: Sequence[Rung], split: str, seed: int) -> pd.DataFrame:
    metrics = [metric(name) for name in task.metrics]
    runs = [rung.run.examples for rung in rungs]
    compared = paired_bootstrap(baseline.examples, runs, metrics, seed=seed)
    level = {"hard_concrete": "penalty", "exact_k": "keep"}[rungs[0].method]
    kinds = [kind for kind, _, _ in heads.index]
    names = np.array(head_names(heads.index))
    rows = []
    for place, rung in enumerate(rungs):
        free = ~np.isnan(rung.weights)
        facts = {
            "strategy": rung.method,
            "ablation": "zero",
            "seed": rung.seed,
            "kinds": "+".join(dict.fromkeys(kind for kind, has in zip(kinds, free, strict=True) if has)),
            "budget": f"{level}={rung.level:g}",
            "n_removed": int(free.sum()) - rung.n_open,
            "n_heads": int(free.sum()),
            "n_examples": len(rung.run.examples),
            "split": split,
            "seconds": rung.run.seconds,
            level: rung.level,
            "n_open": rung.n_open,
            "train_loss": rung.train_loss,
            "run": rung.run.key,
            "removed": ",".join(names[~rung.keep]) or "none",
        }
        for measured in metrics:
            values = compared.loc[(place, measured.name)].to_dict()
            rows.append({**facts, "metric": measured.name, **values, "value_soft": rung.soft[measured.name]})
    return pd.DataFrame(rows, columns=[*SWEEP_COLUMNS, level, "n_open", "train_loss", "value_soft", "run", "removed"])


def _gate_table(heads: Heads, rungs: Sequence[Rung]) -> pd.DataFrame:
    parts = []
    for rung in rungs:
        weights = torch.tensor(rung.weights)
        part = pd.DataFrame({"method": rung.method, "level": rung.level, "seed": rung.seed}, index=heads.index)
        part["weight"] = rung.weights
        if rung.method == "hard_concrete":
            part["p_open"], part["p_one"] = p_open(weights).numpy(), p_one(weights).numpy()
        parts.append(part.assign(kept=rung.keep).reset_index())
    return pd.concat(parts, ignore_index=True)


def _keep_examples(folder: str | Path, runs: Sequence[MaskedRun]) -> None:
    """Add the per-example statistics to those that the folder holds already."""
    table = examples_table({run.key: run for run in runs}.values())
    if table_path(folder, "examples"):
        before = load_table(folder, "examples")
        table = pd.concat([before, table[~table["run"].isin(set(before["run"]))]], ignore_index=True)
    save_table(table, folder, "examples")


def _within(progress: Progress | None, place: int, rungs: int, label: str) -> Progress | None:
    """Progress of one rung as progress of the whole ladder."""
    if progress is None:
        return None
    return lambda done, total, text: progress(place * total + done, rungs * total, f"{label}: {text}")
