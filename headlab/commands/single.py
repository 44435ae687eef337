"""`headlab sweep --single` and `--one-head-per-layer`: every head removed alone, or each layer cut to one head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from headlab.base.errors import DataError, UsageError
from headlab.base.progress import Progress
from headlab.commands.options import option, read_path
from headlab.commands.results_folder import results_in, written_files
from headlab.commands.stages import Stages
from headlab.commands.sweep import TaskRequest

if TYPE_CHECKING:
    import pandas as pd

    from headlab.tasks import Task


@dataclass(frozen=True, kw_only=True)
class SingleRequest(TaskRequest):
    """What each head costs a task when it alone is removed, tested; or what a layer costs that keeps only one head."""

    NAME: ClassVar[str] = "sweep"
    single: bool = option(False, "Instead: each head removed alone, tested.")
    one_head_per_layer: bool = option(False, "Instead: layers cut to one head.")
    compare_with: Path | None = option(None, "With --single: the run to correlate with.", read_path)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.one_head_per_layer:
            object.__setattr__(self, "single", True)

    def check(self) -> None:
        """Raise UsageError for options that do not go together, DataError where there is no table to compare with."""
        super().check()
        if self.single and self.one_head_per_layer:
            raise UsageError("--single and --one-head-per-layer are two tables.", "Ask for one at a time.")
        if self.compare_with is not None and not self.single:
            raise UsageError("--compare-with compares tables of single heads.", "Add --single.")
        if self.compare_with is not None:
            _single_heads_of(self.compare_with)

    @property
    def table(self) -> str:
        """The name of the table: single, or one_head_per_layer."""
        return "one_head_per_layer" if self.one_head_per_layer else "single"

    def settings(self) -> dict[str, Any]:
        """What the task is asked under."""
        return {"ablation": self.ablation, "seed": self.seed} | ({"kinds": self.kinds} if self.kinds else {})

    def signature(self, task: Task) -> dict[str, Any]:
        """What the numbers depend on."""
        return {"command": f"sweep --{self.table.replace('_', '-')}", **task.signature(), **self.settings()}


class SingleResult(NamedTuple):
    """`table` has a row per head and metric (of layers: and by which examples the head was chosen)."""

    table: pd.DataFrame
    correlation: pd.DataFrame | None
    paths: list[Path]


def run(request: SingleRequest, out: str | Path, progress: Progress | None = None) -> SingleResult:
    """Measure the masks within single layers and write the run folder `out`; finished rows of it are used.

    Raises UsageError for a request or a folder that cannot be, DataError for unusable data, and what opening the
    model raises.
    """
    request.check()
    out, stages = Path(out), Stages(progress)
    with results_in(out):
        stages.load_libraries()
        stages.begin(f"opening {request.model} and the task {request.task}")
        task = request.open_task(split=request.split)
        table = _measured(request, task, out, stages)
        correlation = _compared(table, request.compare_with, out)
        _finish(request, task, out)
    return SingleResult(table, correlation, written_files(out))


def _measured(request: SingleRequest, task: Task, out: Path, stages: Stages) -> pd.DataFrame:
    from headlab.attention.heads import Heads
    from headlab.pruning.layerwise import one_head_per_layer, single_heads
    from headlab.runs.folder import open_run
    from headlab.runs.journal import Journal
    from headlab.runs.tables import save_plain

    stages.begin("probing and proving")
    heads = Heads(task.model)
    signature = request.signature(task)
    open_run(out, signature, request.overwrite, command=request.command or request.command_line(out))
    stages.begin("masks within single layers")
    measure = single_heads if request.single else one_head_per_layer
    journal = Journal(out, request.table, signature)
    table = measure(heads, task, **request.settings(), journal=journal, progress=stages)
    save_plain(table, out, request.table)
    return table


def _compared(table: pd.DataFrame, other: Path | None, out: Path) -> pd.DataFrame | None:
    """How well the drops agree with those of another run, head by head."""
    from headlab.pruning.agreement import effect_correlation
    from headlab.runs.tables import save_plain

    (out / "correlation.csv").unlink(missing_ok=True)  # of an earlier comparison
    if other is None:
        return None
    correlation = effect_correlation(table, _single_heads_of(other))
    save_plain(correlation, out, "correlation")
    return correlation


def _finish(request: SingleRequest, task: Task, out: Path) -> None:
    from headlab.runs.meta import write_meta

    write_meta(out, request.signature(task), command=request.command or request.command_line(out))


def _single_heads_of(folder: Path) -> pd.DataFrame:
    """The table of single heads in a run folder; DataError where there is none."""
    import pandas as pd

    file = Path(folder) / "single.csv"
    remedy = "Name a folder that headlab sweep --single wrote."
    if not file.is_file():
        raise DataError(f"{file} is not there.", remedy)
    try:
        table = pd.read_csv(file)
    except (ValueError, OSError) as error:  # empty, not text, ragged
        raise DataError(f"{file} cannot be read: {error}.", remedy) from error
    if missing := {"kind", "layer", "head", "metric", "drop"} - set(table):
        raise DataError(f"{file} has no column {', '.join(sorted(missing))}.", remedy)
    return table
