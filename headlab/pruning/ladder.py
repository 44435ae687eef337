"""Learned gates at several penalties or sizes, each judged with hard gates on other examples: a Pareto table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from headlab.base.errors import UsageError
from headlab.base.masks import HeadMask, head_names
from headlab.metrics import metric
from headlab.pruning.evaluated import evaluated
from headlab.pruning.rungs import Rung, climb
from headlab.pruning.significance import paired_bootstrap
from headlab.runs.evaluations import MaskedEvaluation, evaluation_key, examples_table
from headlab.runs.tables import SWEEP_COLUMNS, load_table, save_table, table_path
from headlab.scores import require_one_model
from headlab.scores.gates.families import gate_family
from headlab.scores.gates.gates import Gates
from headlab.scores.gates.settings import Training as Training  # part of what a caller of ladder needs
from headlab.scores.gates.training import gated_heads

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.base.progress import Progress
    from headlab.tasks import Task


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
    family = gate_family(method)
    asked = _levels(heads, task, family, levels, how, free)
    baseline = evaluated(task, evaluation_key(HeadMask.full(heads), "zero", split, task.signature()), split, run)
    plan = [(level, own) for level in asked for own in range(seed, seed + seeds)]
    rungs = []
    for place, (level, own) in enumerate(plan):
        report = _within(progress, place, len(plan), f"{method} {level:.3g}, seed {own}")
        rungs.append(climb(heads, task, family, level, free, replace(how, seed=own), split, run, report))
    if run is not None:
        _keep_examples(run, [baseline, *(rung.judged for rung in rungs)])
    return Ladder(_curve(heads, task, family, baseline, rungs, split, seed), _gate_table(heads, family, rungs))


def _levels(
    heads: Heads, task: Task, family: type[Gates], levels: Iterable[float] | None, how: Training, free: np.ndarray
) -> list[float]:
    """The levels asked for, each tried in the making of gates, so that a wrong one is refused before any training."""
    how.check()
    if levels is None:
        return family.default_levels(heads, task, how.split, free)
    found = list(dict.fromkeys(float(level) for level in levels))
    if not found:
        raise UsageError("There is no level to train gates at.", "Give penalties, or numbers of heads that stay.")
    for level in found:
        family(int(free.sum()), level)
    return found


def _curve(
    heads: Heads,
    task: Task,
    family: type[Gates],
    baseline: MaskedEvaluation,
    rungs: Sequence[Rung],
    split: str,
    seed: int,
) -> pd.DataFrame:
    metrics = [metric(name) for name in task.metrics]
    compared = paired_bootstrap(baseline.examples, [rung.judged.examples for rung in rungs], metrics, seed=seed)
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
            "budget": f"{family.level_name}={rung.level:g}",
            "n_removed": int(free.sum()) - rung.n_open,
            "n_heads": int(free.sum()),
            "n_examples": len(rung.judged.examples),
            "split": split,
            "seconds": rung.judged.seconds,
            family.level_name: rung.level,
            "n_open": rung.n_open,
            "train_loss": rung.train_loss,
            "run": rung.judged.key,
            "removed": ",".join(names[~rung.keep]) or "none",
        }
        for measured in metrics:
            values = compared.loc[(place, measured.name)].to_dict()
            rows.append({**facts, "metric": measured.name, **values, "value_soft": rung.soft[measured.name]})
    own = [family.level_name, "n_open", "train_loss", "value_soft", "run", "removed"]
    return pd.DataFrame(rows, columns=[*SWEEP_COLUMNS, *own])


def _gate_table(heads: Heads, family: type[Gates], rungs: Sequence[Rung]) -> pd.DataFrame:
    parts = []
    for rung in rungs:
        facts = {"method": rung.method, "level": rung.level, "seed": rung.seed, "weight": rung.weights}
        part = pd.DataFrame({**facts, **family.columns(rung.weights), "kept": rung.keep}, index=heads.index)
        parts.append(part.reset_index())
    return pd.concat(parts, ignore_index=True)


def _keep_examples(folder: str | Path, evaluations: Sequence[MaskedEvaluation]) -> None:
    """Add the per-example statistics to those that the folder holds already."""
    table = examples_table({evaluation.key: evaluation for evaluation in evaluations}.values())
    if table_path(folder, "examples"):
        before = load_table(folder, "examples")
        table = pd.concat([before, table[~table["run"].isin(set(before["run"]))]], ignore_index=True)
    save_table(table, folder, "examples")


def _within(progress: Progress | None, place: int, rungs: int, label: str) -> Progress | None:
    """Progress of one rung as progress of the whole ladder."""
    if progress is None:
        return None

    def report(done: int, total: int | None = None, what: str = "") -> None:
        steps = total or 1
        progress(place * steps + done, rungs * steps, f"{label}: {what}")

    return report
