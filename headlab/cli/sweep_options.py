"""Options of `headlab sweep` beyond scores and budgets: what goes together, what is measured faster, which tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.base.errors import UsageError, unknown_name
from headlab.cli.options import RunOptions
from headlab.cli.output import Progress, table_text

if TYPE_CHECKING:
    import pandas as pd

    from headlab.attention.heads import Heads
    from headlab.tasks import Task

UNITS = ("head", "group")
_PRUNING, _TABLES, _FASTER = "Pruning", "Other tables", "Speed"


@dataclass
class SweepOptions:
    """How heads may go, how `ablation` is measured, and which tables are made beside or instead of curves."""

    keep_at_least: Annotated[
        int, typer.Option(min=0, help="Heads that stay in each layer.", rich_help_panel=_PRUNING)
    ] = 0
    unit: Annotated[
        str, typer.Option(help="head, or group: heads that share keys and values.", rich_help_panel=_PRUNING)
    ] = "head"
    compensate: Annotated[
        str | None, typer.Option(help="mean: also fold removed heads' means into biases.", rich_help_panel=_PRUNING)
    ] = None
    screen: Annotated[
        bool,
        typer.Option("--screen", help="Ablation: gradients first, then the top heads.", rich_help_panel=_FASTER),
    ] = False
    race: Annotated[
        bool, typer.Option("--race", help="Ablation: more examples for close heads only.", rich_help_panel=_FASTER)
    ] = False
    single: Annotated[
        bool, typer.Option("--single", help="Instead: each head removed alone, tested.", rich_help_panel=_TABLES)
    ] = False
    one_head_per_layer: Annotated[
        bool, typer.Option("--one-head-per-layer", help="Instead: layers cut to one head.", rich_help_panel=_TABLES)
    ] = False
    compare_with: Annotated[
        Path | None, typer.Option(help="With --single: the run to correlate with.", rich_help_panel=_TABLES)
    ] = None
    stability: Annotated[
        bool, typer.Option("--stability", help="Also: rank correlation on halves.", rich_help_panel=_TABLES)
    ] = False

    def check(self, wanted: Any) -> None:
        """Raise UsageError for options that do not go together."""
        if self.unit not in UNITS:
            raise unknown_name("unit", self.unit, UNITS)
        if self.compensate not in (None, "mean"):
            raise unknown_name("compensation", str(self.compensate), ("mean",))
        if self.compensate and wanted.ablation != "zero":
            raise UsageError(f"--compensate mean goes beside zero ablation, not {wanted.ablation}.",
                             "Leave out --ablation.")  # fmt: skip
        if self.single and self.one_head_per_layer:
            raise UsageError("--single and --one-head-per-layer are two tables.", "Ask for one at a time.")
        if self.screen and self.race:
            raise UsageError("--screen and --race are two ways to the same scores.", "Choose one.")
        if (self.screen or self.race) and "ablation" not in wanted.scores:
            raise UsageError("--screen and --race are about the score ablation.", "Add it: --scores ablation.")
        if self.screen and wanted.ablation != "zero":
            raise UsageError(f"Gradients cannot screen for {wanted.ablation} ablation.", "Use --race instead.")
        if self.stability and not wanted.scores:
            raise UsageError("--stability compares the ranks that a score gives, and there is no score.",
                             "Add --scores NAME (`headlab list scores`).")  # fmt: skip
        if self.compare_with and not self.single:
            raise UsageError("--compare-with compares tables of single heads.", "Add --single.")
        if self.compare_with:
            self._other_table()

    def refuse_budgets(self, heads: Heads, wanted: Any) -> None:
        """Raise UsageError for a budget that leaves a layer too few heads, before anything is scored."""
        import pandas as pd

        from headlab.pruning.orderings import order

        anything = pd.Series(0.0, index=heads.index, name="score_any")
        groups = heads.kv_groups if self.unit == "group" else None
        ordering = order(anything, wanted.within, kinds=wanted.kinds, keep_at_least=self.keep_at_least, groups=groups)
        for budget in wanted.budgets:
            ordering.cut(budget)

    def refuse_few(self, task: Task) -> None:
        """Raise DataError where there are too few examples for a race, before anything is scored."""
        if self.race:
            from headlab.scores.measures.searches import require_enough_to_race

            require_enough_to_race(len(task.split("select")))

    def signature(self) -> dict[str, Any]:
        """What the rows of a sweep depend on; an option that is not used leaves the signature as it was."""
        found = {"keep_at_least": self.keep_at_least, "unit": self.unit, "compensate": self.compensate}
        found |= {"search": "screen" if self.screen else "race" if self.race else None}
        usual = {"keep_at_least": 0, "unit": "head", "compensate": None, "search": None}
        return {name: value for name, value in found.items() if value != usual[name]}

    def searched(self, name: str) -> str:
        """The score's name with the way in which it is measured."""
        if name != "ablation":
            return name
        return "ablation:screen" if self.screen else "ablation:race" if self.race else name

    def journal(self, name: str, task: Task, wanted: Any, out: Path, run: RunOptions) -> dict[str, Any]:
        """A journal in the run folder, for scores that take one."""
        import inspect

        from headlab.runs.journal import Journal
        from headlab.scores import SCORES

        if "journal" not in inspect.signature(SCORES.load(name.partition(":")[0]).score).parameters:
            return {}
        settings = {"ablation": wanted.ablation, "seed": run.seed, **task.signature()}
        return {"journal": Journal(out, name, settings)}

    def after(
        self, curve: pd.DataFrame, wanted: Any, heads: Heads, task: Task, out: Path, run: RunOptions, progress: Progress
    ) -> None:
        """Tables that follow from a finished sweep: areas under its curves, and on request stability of ranks."""
        from headlab.base.masks import HeadMask
        from headlab.metrics import metric
        from headlab.pruning.areas import curve_areas, rank_stability
        from headlab.runs.evaluations import run_key
        from headlab.runs.tables import load_table, write_atomically

        examples = load_table(out, "examples")
        whole = run_key(HeadMask.full(heads), "zero", "report", task.signature())
        judged = curve[curve["run"].isin(set(examples["run"]))]
        found = curve_areas(judged, examples, [metric(name) for name in task.metrics], whole=whole, seed=run.seed)
        write_atomically(out / "areas.csv", found.to_csv(index=False))
        if self.stability:
            import pandas as pd

            progress.step("scoring on halves")
            common = {"seeds": wanted.seeds, "seed": run.seed, "ablation": wanted.ablation}
            parts = [rank_stability(name, heads, task, **common) for name in wanted.scores]
            write_atomically(out / "stability.csv", pd.concat(parts).to_csv(index=False))

    def areas(self, out: Path) -> pd.DataFrame:
        """The areas as they are printed."""
        import pandas as pd

        return pd.read_csv(out / "areas.csv")

    def tables_of_layers(self, task: Task, wanted: Any, out: Path, run: RunOptions, progress: Progress) -> Any:
        """The table of single heads, or of layers with one head; written to the run folder as csv."""
        from headlab.attention.heads import Heads
        from headlab.cli.opening import command_line
        from headlab.pruning.layerwise import one_head_per_layer, single_heads
        from headlab.runs.journal import Journal
        from headlab.runs.tables import open_run, write_atomically, write_meta

        name = "single" if self.single else "one_head_per_layer"
        progress.step("probing and proving")
        heads = Heads(task.checkpoint)
        settings: dict[str, Any] = {"ablation": wanted.ablation, "seed": run.seed}
        settings |= {"kinds": wanted.kinds} if wanted.kinds else {}
        signature = {"command": f"sweep --{name.replace('_', '-')}", **task.signature(), **settings}
        open_run(out, signature, run.overwrite, command=command_line())
        progress.step("masks within single layers")
        make = single_heads if self.single else one_head_per_layer
        table = make(heads, task, **settings, journal=Journal(out, name, signature), progress=progress)
        write_atomically(out / f"{name}.csv", table.to_csv(index=False))
        (out / "correlation.csv").unlink(missing_ok=True)  # of an earlier comparison
        if self.compare_with:
            self._compare(table, out)
        write_meta(out, signature, command=command_line())
        return table

    def _other_table(self) -> pd.DataFrame:
        """The table of single heads to compare with; DataError where there is none."""
        import pandas as pd

        from headlab.base.errors import DataError

        path = Path(str(self.compare_with)) / "single.csv"
        remedy = "Name a folder that headlab sweep --single wrote."
        if not path.is_file():
            raise DataError(f"{path} is not there.", remedy)
        try:
            found = pd.read_csv(path)
        except (ValueError, OSError) as error:  # empty, not text, ragged
            raise DataError(f"{path} cannot be read: {error}.", remedy) from error
        if missing := {"kind", "layer", "head", "metric", "drop"} - set(found):
            raise DataError(f"{path} has no column {', '.join(sorted(missing))}.", remedy)
        return found

    def _compare(self, table: pd.DataFrame, out: Path) -> None:
        from headlab.pruning.areas import effect_correlation
        from headlab.runs.tables import write_atomically

        found = effect_correlation(table, self._other_table())
        write_atomically(out / "correlation.csv", found.to_csv(index=False))

    def text(self, table: pd.DataFrame, n: int) -> str:
        """The table as it is printed: the largest drops first, after a line on how many tests were passed."""
        tested = table.groupby([c for c in ("metric", "chosen_on") if c in table], sort=False)
        lines = []
        for key, part in tested:
            significant = part[part["significant"]]
            lines.append(
                f"{' '.join(map(str, key if isinstance(key, tuple) else (key,)))}: {len(significant)} of {len(part)} "
                f"significant (Benjamini-Hochberg, 5 %): {int((significant['drop'] > 0).sum())} worse, "
                f"{int((significant['drop'] < 0).sum())} better"
            )
        lines.append("p: paired t test over examples (BLEU and the like: bootstrap), sign test where changes are alike")
        counts = table.groupby("metric", sort=False)["significant"].sum()
        first = table[table["metric"] == counts.idxmax()]  # the metric that tells most
        shown = first.sort_values(["drop", "p"], ascending=[False, True], kind="stable") if self.single else first
        columns = ["kind", "layer", "head", "chosen_on", "metric", "value", "drop", "ci_low", "ci_high", "p", "q"]
        return "\n".join(lines) + "\n\n" + table_text(shown, [*columns, "n_examples"], n)
