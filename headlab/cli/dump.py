"""`headlab dump` on the screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.options import Json, Options, Plugins, TalkOptions, command_line
from headlab.cli.output import Progress, print_json, print_paths, rows, table_text
from headlab.commands.dump import DumpRequest, DumpResult, run

if TYPE_CHECKING:
    import pandas as pd

SHOWN_ROWS = 15
SHOWN = (
    "name",
    "labels",
    "entropy_norm",
    "max_weight",
    "first_mass",
    "separator_mass",
    "self_mass",
    "prev_mass",
    "next_mass",
    "distance",
)

Out = Annotated[Path, typer.Option("--out", help="Folder for the results.", show_default=False)]


def dump(
    options: Annotated[Options, DumpRequest], talk: TalkOptions, out: Out, plugin: Plugins = None, json: Json = False
) -> None:
    """Statistics and labels of every head; without --text or --task, of a few pages that come with headlab."""
    request = DumpRequest(**options, command=command_line())
    with Progress(quiet=talk.quiet) as progress:
        result = run(request, out, progress)
    show(result, talk, json)


def show(result: DumpResult, talk: TalkOptions, json: bool = False) -> None:
    """Print what a dump gave: remarks on stderr, then paths and the first heads."""
    if not talk.quiet:
        for remark in result.remarks:
            print(remark, file=sys.stderr)
    if json:
        print_json({"paths": result.paths, "notes": result.notes, "heads": rows(result.heads)})
        return
    print_paths(result.paths)
    print()
    print(table_text(_named(result.heads), SHOWN, SHOWN_ROWS))


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column of head names, the labelled heads first, each by its strongest statistic."""
    from headlab.base.masks import head_name

    single = table.index.get_level_values("kind").nunique() == 1
    named = table.copy()
    named.insert(0, "name", [head_name(head, single_stack=single) for head in table.index])
    if "labels" not in named.columns or "max_weight" not in named.columns:
        return named
    first = (named["labels"] != "none").astype(int)
    return named.assign(first=first).sort_values(["first", "max_weight"], ascending=False, kind="stable")
