"""`headlab report` on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headlab.cli.options import Json, Options, TalkOptions
from headlab.cli.output import print_json, print_paths
from headlab.commands.report import ReportRequest, run

Folders = Annotated[list[Path], typer.Argument(metavar="DIR [DIR ...]", show_default=False)]
Out = Annotated[Path | None, typer.Option(help="The HTML file; without it report.html in the first DIR.")]


def report(
    folders: Folders, talk: TalkOptions, options: Annotated[Options, ReportRequest], out: Out = None, json: Json = False
) -> None:
    """One self-contained HTML file with the tables and figures of one or more runs."""
    written = run(ReportRequest(folders=folders, **options), out)
    if json:
        print_json(written._asdict())
    else:
        print_paths([written.report, *written.figures])
