"""`headlab sweep`: what heads are worth to a task, and what it costs to remove the least important ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.base.errors import UsageError
from headlab.cli.curve_table import curve_table
from headlab.cli.options import (
    DataOptions,
    Json,
    Model,
    ModelOptions,
    RunOptions,
    TalkOptions,
    TranslationOptions,
    names,
    require,
)
from headlab.cli.output import Progress, print_json, print_paths, rows, table_text
from headlab.cli.sweep_options import SweepOptions
from headlab.cli.training import TrainOptions

if TYPE_CHECKING:
    import pandas as pd

    from headlab.attention.heads import Heads
    from headlab.tasks import Task

DEFAULT_SCORES, DEFAULT_SEEDS = "gradient", 3
DEFAULT_BUDGETS = "0,10%,20%,30%,40%,50%,60%,70%,80%,90%"
WITHIN = ("model", "layer", "kind")
SHOWN_ROWS = 30

TaskName = Annotated[str, typer.Option("--task", help="See `headlab list tasks`.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results.", show_default=False)]
Scores = Annotated[str, typer.Option("--scores", help="A,B: each orders the heads (`headlab list scores`).")]
Ablation = Annotated[
    str, typer.Option("--ablation", help="In a removed head's place: zero, mean, resample or uniform.")
]
Budgets = Annotated[str, typer.Option("--budgets", help="How many heads go: numbers or per cents.")]
Within = Annotated[str, typer.Option("--within", help="model, or equal shares of each layer or kind.")]
Kinds = Annotated[str | None, typer.Option("--kinds", help="Remove only encoder, decoder or cross heads (A,B).")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Random orders, the control.")]
Split = Annotated[str, typer.Option("--split", help="Choose on one part, judge on the other: per cent or counts.")]


def sweep(
    model: Model, opened: ModelOptions, data: DataOptions, translation: TranslationOptions, training: TrainOptions,
    more: SweepOptions, run: RunOptions, talk: TalkOptions, task: TaskName, out: Out,
    scores: Scores = DEFAULT_SCORES, ablation: Ablation = "zero", budgets: Budgets = DEFAULT_BUDGETS,
    within: Within = "model", kinds: Kinds = None, seeds: Seeds = DEFAULT_SEEDS, split: Split = "50:50",
    json: Json = False,
) -> None:  # fmt: skip
    """Scores of all heads for a task, and the task's metrics as heads are removed, with random orders as control."""
    from headlab.cli import opening

    wanted = Wanted(task, scores, ablation, budgets, within, kinds, seeds)
    training.check()
    more.check(wanted)
    _check_together(wanted, training, more)
    with opening.results_in(out), Progress(quiet=talk.quiet) as progress:
        progress.step(f"opening {model} and the task {task}")
        opened_task = opening.open_task(task, model, opened, data, seed=run.seed, split=split, **translation.given())
        if more.single or more.one_head_per_layer:
            shown = more.tables_of_layers(opened_task, wanted, out, run, progress)
        else:
            shown = curve = _sweep(opened_task, wanted, training, more, out, run, progress)
    from headlab.cli.dump import files

    if json:
        name = "single" if more.single else "one_head_per_layer" if more.one_head_per_layer else "sweep"
        print_json({"paths": files(out), name: rows(shown)})
        return
    print_paths(files(out))
    print()
    if more.single or more.one_head_per_layer:
        print(more.text(shown, SHOWN_ROWS))
        return
    print(table_text(curve_table(curve), n=SHOWN_ROWS))
    print()
    print(table_text(more.areas(out)))


def _check_together(wanted: Wanted, training: TrainOptions, more: SweepOptions) -> None:
    """Raise UsageError for options of which one leaves nothing for the other to do."""
    if more.compensate and training.train == "all":
        raise UsageError("--compensate goes beside plain removal, not fine-tuning.", "Leave out --train all.")
    bound = {"--keep-at-least": more.keep_at_least > 0, "--unit group": more.unit != "head"}
    for option, given in bound.items():
        if given and training.levels():
            raise UsageError(f"Learned gates choose freely and know no {option}.", f"Leave out {option} or the gates.")
    if not (more.single or more.one_head_per_layer):
        return
    table = "--single" if more.single else "--one-head-per-layer"
    idle = {
        "--scores": wanted.scores != [DEFAULT_SCORES], "--budgets": wanted.budgets_text != DEFAULT_BUDGETS,
        "--within": wanted.within != "model", "--seeds": wanted.seeds != DEFAULT_SEEDS, "--screen": more.screen,
        "--race": more.race, "--compensate": more.compensate is not None, "--stability": more.stability,
        "--train": training.train != "none", **bound,
    }  # fmt: skip
    for option, given in idle.items():
        if given:
            raise UsageError(f"{option} is about curves, and {table} makes a table instead.", f"Leave out {option}.")


class Wanted:
    """What a sweep is asked for; what cannot be is refused before a model is loaded."""

    def __init__(
        self, task: str, scores: str, ablation: str, budgets: str, within: str, kinds: str | None, seeds: int
    ) -> None:
        from headlab.base.errors import unknown_name
        from headlab.base.masks import ABLATIONS, KINDS
        from headlab.base.registry import Registry
        from headlab.pruning.budgets import budget_size, parse_budgets
        from headlab.scores._names import require_score

        require(Registry("headlab.tasks", "task", hyphenated=True), task)
        self.scores = [name for name in names(scores) if name != "random"]  # random orders are always there
        for name in self.scores:
            require_score(name)
        self.budgets, self.budgets_text = parse_budgets(budgets), budgets
        for budget in self.budgets:
            budget_size(budget, 1 << 30)  # shares out of range and what is no budget; counts wait for the model
        for noun, value, known in (("ablation", ablation, ABLATIONS), ("within", within, WITHIN)):
            if value not in known:
                raise unknown_name(noun, value, known)
        self.kinds = names(kinds) or None
        for kind in self.kinds or ():
            if kind not in KINDS:
                raise unknown_name("kind of attention", kind, KINDS)
        self.ablation, self.within, self.seeds = ablation, within, seeds


def _sweep(
    task: Task, wanted: Wanted, training: TrainOptions, more: SweepOptions, out: Path, run: RunOptions,
    progress: Progress,
) -> pd.DataFrame:  # fmt: skip
    """Scores, then the sweep, then figures; whatever an interrupted run of the same signature left is used."""
    from headlab.attention.heads import Heads
    from headlab.cli.opening import command_line
    from headlab.pruning.budgets import budget_size
    from headlab.pruning.sweep import sweep as sweep_heads
    from headlab.report.pictures import write_brief
    from headlab.runs.tables import open_run, save_table, write_meta

    progress.step("probing and proving")
    heads = Heads(task.checkpoint)
    more.refuse_budgets(heads, wanted)
    more.refuse_few(task)
    n_heads = sum(wanted.kinds is None or kind in wanted.kinds for kind, _, _ in heads.index)
    training.refuse_levels(n_heads)
    for budget in wanted.budgets:
        if budget_size(budget, n_heads) == 0 and budget_size(budget, 1 << 30) > 0:
            print(f"Warning: the budget {budget} of {n_heads} heads removes no head.", file=sys.stderr)
    signature = _signature(task, wanted, run) | training.signature(task) | more.signature()
    state = open_run(out, signature, run.overwrite, command=command_line())
    table = _head_table(heads, task, wanted, more, out, state == "resume", run, progress)
    save_table(table, out, "heads", run.format.value)
    orderings = _orderings(table, wanted, more, heads, run.seed)
    progress.step("removing heads")
    curve = sweep_heads(
        heads, task, orderings, wanted.budgets, ablation=wanted.ablation, seeds=wanted.seeds, seed=run.seed,
        finetuning=training.finetuning(run.seed), compensate=more.compensate, run=out, progress=progress,
    )  # fmt: skip
    curve = training.with_gates(curve, heads, task, out, run, progress, seeds=wanted.seeds, kinds=wanted.kinds)
    save_table(curve, out, "sweep", run.format.value)
    more.after(curve, wanted, heads, task, out, run, progress)
    progress.step("drawing")
    write_brief(out)
    notes = {"proofs": [f"{p.name} ({p.detail})" for p in heads.proofs]}
    write_meta(out, signature, command=command_line(), notes=notes)
    return curve


def _signature(task: Task, wanted: Wanted, run: RunOptions) -> dict[str, Any]:
    """What the numbers depend on; scores and budgets only say which rows there are."""
    settings = {"ablation": wanted.ablation, "within": wanted.within, "kinds": wanted.kinds, "seed": run.seed}
    return {"command": "sweep", **task.signature(), **settings}


def _head_table(
    heads: Heads, task: Task, wanted: Wanted, more: SweepOptions, out: Path, resumed: bool, run: RunOptions,
    progress: Progress,
) -> pd.DataFrame:  # fmt: skip
    """Statistics, labels and scores on the select split; those that an earlier part of the run has are taken over."""
    from headlab.labels import default_labels
    from headlab.runs.tables import load_table, save_table, table_path
    from headlab.scores import score, standard_errors

    if resumed and table_path(out, "heads"):
        table = load_table(out, "heads")
    else:
        progress.step("observing")
        table = heads.observe(list(task.batches("select")), default_labels(), seed=run.seed, progress=progress)
        save_table(table, out, "heads", run.format.value)
    for name in wanted.scores or ["random"]:
        column = f"score_{name}"
        if column not in table.columns:
            progress.step(f"scoring by {name}")
            kept = {"table": table, "progress": progress, **more.journal(name, task, wanted, out, run)}
            found = score(more.searched(name), heads, task, ablation=wanted.ablation, seed=run.seed, **kept)
            table[column] = found.to_numpy()
            if more.searched(name) != name:  # which values are of all examples
                table[f"{name}_error"] = standard_errors(found)
            save_table(table, out, "heads", run.format.value)  # a score that is done is not lost
    return table


def _orderings(table: pd.DataFrame, wanted: Wanted, more: SweepOptions, heads: Heads, seed: int) -> list[Any]:
    """One ordering for each score; where only random ones are asked for, the first of them, as the sweep wants one."""
    from headlab.pruning.orderings import order

    groups = heads.kv_groups if more.unit == "group" else None
    common: dict[str, Any] = {"within": wanted.within, "kinds": wanted.kinds, "groups": groups}
    common["keep_at_least"] = more.keep_at_least
    if not wanted.scores:
        return [order(table["score_random"], seed=seed, **common)]
    return [order(table[f"score_{name}"], **common) for name in wanted.scores]
