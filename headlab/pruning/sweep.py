"""What it costs to remove heads: every ordering under every budget, with random controls, resumable."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headlab.base.errors import UsageError, unknown_name
from headlab.base.masks import ABLATIONS, HeadMask
from headlab.metrics import metric
from headlab.pruning.budgets import Budget
from headlab.pruning.compensation import compensated
from headlab.pruning.evaluated import evaluated
from headlab.pruning.orderings import Ordering
from headlab.pruning.plan import Cell, plan
from headlab.pruning.significance import paired_bootstrap
from headlab.pruning.training import Finetuning, finetuned
from headlab.runs.evaluations import MaskedEvaluation, evaluation_key, examples_table
from headlab.runs.tables import SWEEP_COLUMNS, save_table
from headlab.scores import require_one_model
from headlab.tasks.running.batches import batching

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.base.progress import Progress
    from headlab.tasks import Task

COMPENSATED = "zero + mean bias"  # the way to remove heads whose mean outputs stay, as biases
SUFFIX = COMPENSATED.removeprefix("zero")  # what a strategy's name ends in then
Judged = tuple[HeadMask, Finetuning | None]  # a mask, and what was trained under it before it was judged


@dataclass(frozen=True)
class _Conditions:
    """What the masks of a sweep are judged under."""

    ablation: str  # or COMPENSATED
    split: str
    seed: int
    finetuning: Finetuning | None


def sweep(
    heads: Heads,
    task: Task,
    orderings: Ordering | Iterable[Ordering],
    budgets: str | Budget | Iterable[Budget],
    *,
    ablation: str = "zero",
    split: str = "report",
    seeds: int = 3,
    seed: int = 0,
    finetuning: Finetuning | None = None,
    compensate: str | None = None,
    run: str | Path | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Evaluate a task under every cut of the orderings and of `seeds` random orders; one row per cut and metric.

    The columns are those of the contract; `drop` > 0 is worse, `ci_low` and `ci_high` bound it in 95 % of 1,000
    paired bootstrap resamples, `n_heads` counts the heads that the ordering chooses from. A column `run` is the key of
    the evaluation in the `examples` table, and `removed` names the heads that are gone (`L0H6,L4H4`). Budget 0 is
    always there. Each mask is evaluated once, whichever strategies share it. A metric that is NaN under a mask is
    recorded as NaN.

    With `run`, a folder, each finished mask is written at once and read again by the next call, and the per-example
    statistics are left there as the `examples` table. With `finetuning` the remaining weights are trained after each
    cut and put back after it has been judged; budget 0 shows what the training alone does, the baseline is the model
    as it is, and a column `finetuning_steps` says so. Mean and resample ablation take what stands in a head's place
    from the "select" split. `compensate="mean"` adds every strategy once more, beside zero ablation, with its heads'
    mean outputs folded into the projections' biases; their names end in ` + mean bias`. Raises UsageError for
    orderings, budgets, ablations and splits that cannot be, and for heads of another model than the task's.
    """
    require_one_model(heads, task)
    task.split(split)  # refuses an unknown split before anything is run
    ways = _ways(ablation, compensate, split, seed, finetuning)
    cells = plan(heads, task, orderings, budgets, seeds=seeds, seed=seed)
    tables: list[pd.DataFrame] = []
    kept: dict[str, MaskedEvaluation] = {}
    for conditions in ways:
        evaluations = _evaluate(heads, task, cells, conditions, run, progress)
        tables.append(_table(cells, evaluations, task, conditions))
        kept |= {evaluation.key: evaluation for evaluation in evaluations.values()}
    if run is not None:
        save_table(examples_table(kept.values()), run, "examples")
    return pd.concat(tables, ignore_index=True)


def _ways(
    ablation: str, compensate: str | None, split: str, seed: int, finetuning: Finetuning | None
) -> list[_Conditions]:
    """The conditions of a sweep, two where compensation goes beside removal; UsageError for those that cannot be."""
    if ablation not in ABLATIONS:
        raise unknown_name("ablation", ablation, ABLATIONS)
    if finetuning is not None:
        finetuning.check()
    if compensate not in (None, "mean"):
        raise unknown_name("compensation", compensate, ("mean",))
    if compensate and (ablation != "zero" or finetuning is not None):
        beside = f"{ablation} ablation" if ablation != "zero" else "fine-tuning"
        cause = f"Compensation by means goes beside plain zero ablation, not {beside}."
        raise UsageError(cause, "Leave one of them out.")
    ways = [ablation, COMPENSATED] if compensate else [ablation]
    return [_Conditions(way, split, seed, finetuning) for way in ways]


def _evaluate(
    heads: Heads,
    task: Task,
    cells: list[Cell],
    conditions: _Conditions,
    folder: str | Path | None,
    progress: Progress | None,
) -> dict[Judged, MaskedEvaluation]:
    """One evaluation per distinct mask, the full mask first; those that the folder holds are read."""
    ablation, finetuning = conditions.ablation, conditions.finetuning
    labels: dict[Judged, str] = {(HeadMask.full(heads), None): "all heads"}
    for cell in cells:
        labels.setdefault((cell.mask, finetuning), f"{cell.strategy} {cell.budget}")
    signature, split = task.signature(), conditions.split
    # Of resampling the seed says whose outputs are taken.
    drawn = f"resample {conditions.seed}" if ablation == "resample" else ablation
    trained = {} if finetuning is None else {**finetuning.signature(), "batching": batching(task, finetuning.split)}

    @functools.cache
    def means() -> Any:
        kind = "mean" if ablation == COMPENSATED else ablation
        return heads.replacements(kind, task.batches("select"), seed=conditions.seed)

    def change(mask: HeadMask, how: Finetuning | None) -> contextlib.AbstractContextManager:
        if how is not None:
            return finetuned(heads, task, mask, how, ablation=ablation, means=means() if mask.removed else None)
        if not mask.removed:
            return contextlib.nullcontext()  # the baseline is the model as it is
        return compensated(heads, mask, means()) if ablation == COMPENSATED else heads.masked(mask, ablation, means())

    evaluations: dict[Judged, MaskedEvaluation] = {}
    for (mask, how), label in labels.items():
        if progress:
            progress(len(evaluations), len(labels), label)
        key = evaluation_key(mask, drawn, split, signature if how is None else {**signature, **trained})
        evaluations[mask, how] = evaluated(task, key, split, folder, functools.partial(change, mask, how))
    if progress:
        progress(len(evaluations), len(labels), "done")
    return evaluations


def _table(
    cells: list[Cell], evaluations: Mapping[Judged, MaskedEvaluation], task: Task, conditions: _Conditions
) -> pd.DataFrame:
    finetuning, compensated_too = conditions.finetuning, conditions.ablation == COMPENSATED
    metrics = [metric(name) for name in task.metrics]
    examples = [evaluation.examples for evaluation in evaluations.values()]  # the full mask comes first
    compared = paired_bootstrap(examples[0], examples, metrics, seed=conditions.seed)
    place = {mask: i for i, (mask, how) in enumerate(evaluations) if how == finetuning}
    rows = [
        {
            "strategy": cell.strategy + (SUFFIX if compensated_too else ""),
            "ablation": "zero" if compensated_too else conditions.ablation,
            "seed": cell.seed,
            "kinds": cell.kinds,
            "budget": cell.budget,
            "n_removed": len(cell.mask.removed),
            "n_heads": cell.n_heads,
            "metric": measured.name,
            **compared.loc[(place[cell.mask], measured.name)].to_dict(),
            "n_examples": len(evaluation.examples),
            "split": conditions.split,
            "seconds": evaluation.seconds,
            "run": evaluation.key,
            "removed": cell.mask.to_text() or "none",
        }
        for cell in cells
        for evaluation in [evaluations[cell.mask, finetuning]]
        for measured in metrics
    ]
    table = pd.DataFrame(rows, columns=[*SWEEP_COLUMNS, "run", "removed"])
    return table if finetuning is None else table.assign(finetuning_steps=finetuning.steps)
