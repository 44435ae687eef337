"""`headlab sweep` on the screen: curves, or a table of single heads or of layers with one head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlab.base.errors import UsageError
from headlab.cli.curve_table import curve_table
from headlab.cli.options import Json, Options, Plugins, TalkOptions, command_line
from headlab.cli.output import Progress, print_json, print_paths, rows, table_text
from headlab.commands import single
from headlab.commands import sweep as curves
from headlab.commands.options import flag, options_of
from headlab.commands.single import SingleRequest, SingleResult
from headlab.commands.sweep import SweepRequest, SweepResult

if TYPE_CHECKING:
    import pandas as pd

SHOWN_ROWS = 30

Out = Annotated[Path, typer.Option("--out", help="Folder for the results.", show_default=False)]


def sweep(
    options: Annotated[Options, SweepRequest, SingleRequest],
    talk: TalkOptions,
    out: Out,
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """Scores of all heads for a task, and the task's metrics as heads are removed, with random orders as control."""
    request = _request(options)
    with Progress(quiet=talk.quiet) as progress:
        if isinstance(request, SingleRequest):
            result: SingleResult | SweepResult = single.run(request, out, progress)
        else:
            result = curves.run(request, out, progress)
    if isinstance(request, SingleRequest) and isinstance(result, SingleResult):
        _show_table(request, result, json)
    elif isinstance(result, SweepResult):
        show_curves(result, json)


def _request(options: dict[str, Any]) -> SweepRequest | SingleRequest:
    """The request that the options make; raises UsageError for options of the one in a request for the other."""
    of_table = {name: options[name] for name in ("single", "one_head_per_layer", "compare_with")}
    of_curves = {name: value for name, value in options.items() if name not in of_table}
    request = SweepRequest(**of_curves, command=command_line())
    request.check()
    if not (options["single"] or options["one_head_per_layer"]):
        if options["compare_with"]:
            raise UsageError("--compare-with compares tables of single heads.", "Add --single.")
        return request
    table = "--single" if options["single"] else "--one-head-per-layer"
    common = {name: options[name] for name in options_of(SingleRequest)}
    for name in options_of(SweepRequest):
        if name not in common and getattr(request, name) != SweepRequest.__dataclass_fields__[name].default:
            cause = f"{flag(name)} is about curves, and {table} makes a table instead."
            raise UsageError(cause, f"Leave out {flag(name)}.")
    return SingleRequest(**common, command=command_line())


def show_curves(result: SweepResult, json: bool = False) -> None:
    """Print what a sweep gave: paths, the curves side by side, the areas under them."""
    if json:
        print_json({"paths": result.paths, "sweep": rows(result.curve)})
        return
    print_paths(result.paths)
    print()
    print(table_text(curve_table(result.curve), n=SHOWN_ROWS))
    print()
    print(table_text(result.areas))


def _show_table(request: SingleRequest, result: SingleResult, json: bool) -> None:
    if json:
        print_json({"paths": result.paths, request.table: rows(result.table)})
        return
    print_paths(result.paths)
    print()
    print(_table_text(result.table, largest_first=request.single))


def _table_text(table: pd.DataFrame, *, largest_first: bool) -> str:
    """The table as it is printed, after a line on how many tests were passed."""
    lines = []
    for key, part in table.groupby([c for c in ("metric", "chosen_on") if c in table], sort=False):
        significant = part[part["significant"]]
        lines.append(
            f"{' '.join(map(str, key if isinstance(key, tuple) else (key,)))}: {len(significant)} of {len(part)} "
            f"significant (Benjamini-Hochberg, 5 %): {int((significant['drop'] > 0).sum())} worse, "
            f"{int((significant['drop'] < 0).sum())} better"
        )
    lines.append("p: paired t test over examples (BLEU and the like: bootstrap), sign test where changes are alike")
    counts = table.groupby("metric", sort=False)["significant"].sum()
    shown = table[table["metric"] == counts.idxmax()]  # the metric that tells most
    if largest_first:
        shown = shown.sort_values(["drop", "p"], ascending=[False, True], kind="stable")
    columns = ["kind", "layer", "head", "chosen_on", "metric", "value", "drop", "ci_low", "ci_high", "p", "q"]
    return "\n".join(lines) + "\n\n" + table_text(shown, [*columns, "n_examples"], SHOWN_ROWS)
