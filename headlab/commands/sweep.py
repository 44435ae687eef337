"""`headlab sweep`: what heads are worth to a task, and what it costs to remove the least important ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from headlab.base.errors import UsageError, unknown_name
from headlab.base.progress import Progress
from headlab.commands.options import RunRequest, TrainingOptions, check_plugin, option, read_names
from headlab.commands.results_folder import results_in, written_files
from headlab.commands.stages import Stages
from headlab.pruning.budgets import Budget, budget_size, parse_budgets

if TYPE_CHECKING:
    import pandas as pd

    from headlab.attention.heads import Heads
    from headlab.pruning.orderings import Ordering
    from headlab.tasks import Task

UNITS = ("head", "group")
WITHIN = ("model", "layer", "kind")
DEFAULT_SCORES = ("gradient",)
DEFAULT_BUDGETS = ("0", "10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%")


@dataclass(frozen=True, kw_only=True)
class TaskRequest(RunRequest):
    """A command that removes heads and asks a task what that costs."""

    task: str = option(MISSING, "See `headlab list tasks`.")
    ablation: str = option("zero", "In a removed head's place: zero, mean, resample or uniform.")
    kinds: Sequence[str] | None = option(None, "Remove only encoder, decoder or cross heads (A,B).", read_names)
    split: str = option("50:50", "Choose on one part, judge on the other: per cent or counts.")

    def check(self) -> None:
        """Raise UsageError for an unknown task, ablation or kind of attention."""
        super().check()
        from headlab.base.masks import ABLATIONS, KINDS
        from headlab.tasks import TASKS

        check_plugin(TASKS, self.task)
        if self.ablation not in ABLATIONS:
            raise unknown_name("ablation", self.ablation, ABLATIONS)
        for kind in self.kinds or ():
            if kind not in KINDS:
                raise unknown_name("kind of attention", kind, KINDS)


@dataclass(frozen=True, kw_only=True)
class SweepRequest(TrainingOptions, TaskRequest):
    """Scores of all heads for a task, and its metrics as heads are removed, with random orders as control."""

    NAME: ClassVar[str] = "sweep"
    scores: Sequence[str] = option(DEFAULT_SCORES, "A,B: each orders the heads (`headlab list scores`).", read_names)
    budgets: Sequence[Budget] = option(DEFAULT_BUDGETS, "How many heads go: numbers or per cents.", read_names)
    within: str = option("model", "model, or equal shares of each layer or kind.")
    seeds: int = option(3, "Random orders, the control.", least=1)
    keep_at_least: int = option(0, "Heads that stay in each layer.", least=0)
    unit: str = option("head", "head, or group: heads that share keys and values.")
    compensate: str | None = option(None, "mean: also fold removed heads' means into biases.")
    screen: bool = option(False, "Ablation: gradients first, then the top heads.")
    race: bool = option(False, "Ablation: more examples for close heads only.")
    stability: bool = option(False, "Also: rank correlation on halves.")

    def check(self) -> None:
        """Raise UsageError for unknown names, budgets out of range, and options that do not go together."""
        super().check()
        from headlab.scores import make_score

        for score in self.scores:
            make_score(score)
        for budget in self.cuts():
            budget_size(budget, 1 << 30)  # shares out of range and what is no budget; counts wait for the model
        if self.within not in WITHIN:
            raise unknown_name("within", self.within, WITHIN)
        if self.unit not in UNITS:
            raise unknown_name("unit", self.unit, UNITS)
        if self.compensate not in (None, "mean"):
            raise unknown_name("compensation", str(self.compensate), ("mean",))
        self._check_scores()
        self._check_removal()

    def _check_scores(self) -> None:
        """Raise UsageError where the ways to measure scores do not go with each other, or with the scores."""
        if self.screen and self.race:
            raise UsageError("--screen and --race are two ways to the same scores.", "Choose one.")
        if (self.screen or self.race) and "ablation" not in self.scores:
            raise UsageError("--screen and --race are about the score ablation.", "Add it: --scores ablation.")
        if self.screen and self.ablation != "zero":
            raise UsageError(f"Gradients cannot screen for {self.ablation} ablation.", "Use --race instead.")
        if self.stability and not self.ordering_scores():
            cause = "--stability compares the ranks that a score gives, and there is no score."
            raise UsageError(cause, "Add --scores NAME (`headlab list scores`).")

    def _check_removal(self) -> None:
        """Raise UsageError where the ways to remove heads do not go with each other."""
        if self.compensate and self.ablation != "zero":
            cause = f"--compensate mean goes beside zero ablation, not {self.ablation}."
            raise UsageError(cause, "Leave out --ablation.")
        if self.compensate and self.train == "all":
            raise UsageError("--compensate goes beside plain removal, not fine-tuning.", "Leave out --train all.")
        for name, given in {"--keep-at-least": self.keep_at_least > 0, "--unit group": self.unit != "head"}.items():
            if given and self.levels():
                raise UsageError(f"Learned gates choose freely and know no {name}.", f"Leave out {name} or the gates.")

    def cuts(self) -> list[Budget]:
        """The budgets, each once, 0 first."""
        return parse_budgets(self.budgets)

    def ordering_scores(self) -> list[str]:
        """The scores that order heads; random orders are always there."""
        return [name for name in self.scores if name != "random"]

    def measured(self, score: str) -> str:
        """The score's name with the way in which it is measured."""
        return f"ablation:{self._search()}" if score == "ablation" and self._search() else score

    def _search(self) -> str | None:
        return "screen" if self.screen else "race" if self.race else None

    def signature(self, task: Task) -> dict[str, Any]:
        """What the numbers depend on; scores and budgets only say which rows there are.

        An option that is not used leaves it as it was before there was such an option.
        """
        settings = {"ablation": self.ablation, "within": self.within, "kinds": self.kinds or None, "seed": self.seed}
        training = {"train": self.train, "steps": self.n_steps, "batch_size": self.batch_size}
        beyond = {
            "training": None if self.train == "none" else training,
            "keep_at_least": self.keep_at_least or None,
            "unit": None if self.unit == "head" else self.unit,
            "compensate": self.compensate,
            "search": self._search(),
        }
        used = {name: value for name, value in beyond.items() if value is not None}
        return {"command": "sweep", **task.signature(), **settings, **used}


class SweepResult(NamedTuple):
    """`curve` has a row per ordering, cut and metric, `heads` one per head, `areas` one per curve.

    `stability` is there where it was asked for; `warnings` say what is other than was asked for.
    """

    curve: pd.DataFrame
    heads: pd.DataFrame
    areas: pd.DataFrame
    stability: pd.DataFrame | None
    paths: list[Path]
    warnings: list[str]


def run(request: SweepRequest, out: str | Path, progress: Progress | None = None) -> SweepResult:
    """Score the heads, remove them budget by budget, and write the run folder `out`.

    What an interrupted run of the same signature left there is used. Raises UsageError for a request or a folder
    that cannot be, DataError for unusable data, and what opening the model raises.
    """
    request.check()
    out, stages = Path(out), Stages(progress)
    with results_in(out):
        stages.load_libraries()
        stages.begin(f"opening {request.model} and the task {request.task}")
        task = request.open_task(split=request.split)
        return _sweep(request, task, out, stages)


def _sweep(request: SweepRequest, task: Task, out: Path, stages: Stages) -> SweepResult:
    """Scores, then the sweep, then what follows from it."""
    from headlab.attention.heads import Heads
    from headlab.commands.plugins import facts_of_own
    from headlab.pruning.sweep import sweep as sweep_heads
    from headlab.report.pictures import write_brief
    from headlab.runs.folder import open_run
    from headlab.runs.meta import write_meta
    from headlab.runs.tables import save_table

    stages.begin("probing and proving")
    heads = Heads(task.model)
    _check_against(request, heads, task, stages)
    signature, command = request.signature(task), request.command or request.command_line(out)
    state = open_run(out, signature, request.overwrite, command=command)
    table = _head_table(request, heads, task, out, state == "resume", stages)
    save_table(table, out, "heads", request.format)
    stages.begin("removing heads")
    curve = sweep_heads(
        heads,
        task,
        _orderings(request, table, heads),
        request.cuts(),
        ablation=request.ablation,
        seeds=request.seeds,
        seed=request.seed,
        finetuning=request.finetuning(request.seed),
        compensate=request.compensate,
        run=out,
        progress=stages,
    )
    curve = _with_gates(request, curve, heads, task, out, stages)
    save_table(curve, out, "sweep", request.format)
    areas = _areas(request, curve, heads, task, out)
    stability = _stability(request, heads, task, out, stages) if request.stability else None
    stages.begin("drawing")
    write_brief(out)
    notes = {"proofs": [f"{p.name} ({p.detail})" for p in heads.proofs]} | facts_of_own([*table.columns, *task.metrics])
    write_meta(out, signature, command=command, notes=notes)
    return SweepResult(curve, table, areas, stability, written_files(out), stages.warnings)


def _check_against(request: SweepRequest, heads: Heads, task: Task, stages: Stages) -> None:
    """Refuse, before anything is scored, what the model or the data cannot give; warn of cuts that remove nothing.

    Raises UsageError for a budget that leaves a layer too few heads and for a penalty, or a number of heads to keep,
    that cannot be, DataError where there are too few examples for a race.
    """
    import pandas as pd

    from headlab.scores.gates.families import gate_family
    from headlab.scores.measures.searches import require_enough_to_race

    ordering = _order(request, pd.Series(0.0, index=heads.index, name="score_any"), heads)
    for budget in request.cuts():
        ordering.cut(budget)
    if request.race:
        require_enough_to_race(len(task.split("select")))
    n_heads = sum(not request.kinds or kind in request.kinds for kind, _, _ in heads.index)
    for method, levels in request.levels().items():
        for level in levels or ():
            gate_family(method)(n_heads, level)
    for budget in request.cuts():
        if budget_size(budget, n_heads) == 0 and budget_size(budget, 1 << 30) > 0:
            stages.warn(f"the budget {budget} of {n_heads} heads removes no head.")


def _head_table(
    request: SweepRequest, heads: Heads, task: Task, out: Path, resumed: bool, stages: Stages
) -> pd.DataFrame:
    """Statistics, labels and scores on the select split; those that an earlier part of the run has are taken over."""
    from headlab.labels import default_labels
    from headlab.runs.tables import load_table, save_table, table_path
    from headlab.scores import score, standard_errors

    if resumed and table_path(out, "heads"):
        table = load_table(out, "heads")
    else:
        stages.begin("observing")
        table = heads.observe(list(task.batches("select")), default_labels(), seed=request.seed, progress=stages)
        save_table(table, out, "heads", request.format)
    for name in request.ordering_scores() or ["random"]:
        column, measured = f"score_{name}", request.measured(name)
        if column not in table.columns:
            stages.begin(f"scoring by {name}")
            common = {"ablation": request.ablation, "seed": request.seed, "table": table, "progress": stages}
            found = score(measured, heads, task, **common, **_journal(request, name, task, out))
            table[column] = found.to_numpy()
            if measured != name:  # which values are of all examples
                table[f"{name}_error"] = standard_errors(found)
            save_table(table, out, "heads", request.format)  # a score that is done is not lost
    return table


def _journal(request: SweepRequest, name: str, task: Task, out: Path) -> dict[str, Any]:
    """A journal in the run folder, for scores that take one."""
    from headlab.runs.journal import Journal
    from headlab.scores import SCORES

    if not SCORES.load(name.partition(":")[0]).uses_journal:
        return {}
    return {"journal": Journal(out, name, {"ablation": request.ablation, "seed": request.seed, **task.signature()})}


def _orderings(request: SweepRequest, table: pd.DataFrame, heads: Heads) -> list[Ordering]:
    """One ordering for each score; where only random ones are asked for, the first of them, as the sweep wants one."""
    if not request.ordering_scores():
        return [_order(request, table["score_random"], heads, seed=request.seed)]
    return [_order(request, table[f"score_{name}"], heads) for name in request.ordering_scores()]


def _order(request: SweepRequest, scores: pd.Series, heads: Heads, seed: int | None = None) -> Ordering:
    from headlab.pruning.orderings import order

    return order(
        scores,
        within=request.within,
        kinds=request.kinds or None,
        groups=heads.kv_groups if request.unit == "group" else None,
        keep_at_least=request.keep_at_least,
        seed=seed,
    )


def _with_gates(
    request: SweepRequest, curve: pd.DataFrame, heads: Heads, task: Task, out: Path, stages: Stages
) -> pd.DataFrame:
    """The sweep's table with the rungs of the ladders below it; the gates themselves go into gates.csv."""
    import pandas as pd

    from headlab.pruning.ladder import Training, ladder
    from headlab.runs.tables import save_plain

    ladders = []
    for method, levels in request.levels().items():
        stages.begin(f"learning gates ({method})")
        how = Training(request.n_steps, train=request.train, per_example=True)
        common: dict[str, Any] = {"seeds": request.seeds, "seed": request.seed, "kinds": request.kinds or None}
        ladders.append(ladder(heads, task, method, levels, training=how, run=out, progress=stages, **common))
    if not ladders:
        return curve
    for climbed in ladders:
        closed = climbed.curve[climbed.curve["n_open"] == 0].drop_duplicates(["budget", "seed"])
        for row in closed.itertuples():
            stages.warn(f"every gate closed at {row.budget} (seed {row.seed}).")
    gates = pd.concat([climbed.gates for climbed in ladders], ignore_index=True)
    save_plain(gates, out, "gates")
    return pd.concat([curve, *(climbed.curve for climbed in ladders)], ignore_index=True)


def _areas(request: SweepRequest, curve: pd.DataFrame, heads: Heads, task: Task, out: Path) -> pd.DataFrame:
    """Areas under the curves whose cells were judged example by example."""
    from headlab.base.masks import HeadMask
    from headlab.metrics import metric
    from headlab.pruning.areas import curve_areas
    from headlab.runs.evaluations import evaluation_key
    from headlab.runs.tables import load_table, save_plain

    examples = load_table(out, "examples")
    whole = evaluation_key(HeadMask.full(heads), "zero", "report", task.signature())
    judged = curve[curve["run"].isin(set(examples["run"]))]
    metrics = [metric(name) for name in task.metrics]
    areas = curve_areas(judged, examples, metrics, whole=whole, seed=request.seed)
    save_plain(areas, out, "areas")
    return areas


def _stability(request: SweepRequest, heads: Heads, task: Task, out: Path, stages: Stages) -> pd.DataFrame:
    """How well the ranks that each score gives on one half of the examples agree with those on the other."""
    import pandas as pd

    from headlab.pruning.agreement import rank_stability
    from headlab.runs.tables import save_plain

    stages.begin("scoring on halves")
    common: dict[str, Any] = {"seeds": request.seeds, "seed": request.seed, "ablation": request.ablation}
    parts = [rank_stability(name, heads, task, **common) for name in request.ordering_scores()]
    stability = pd.concat(parts)
    save_plain(stability, out, "stability")
    return stability
