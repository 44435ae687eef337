"""`headlab report`: one HTML file from the folders of runs; needs no model and no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headlab.cli.options import Json, TalkOptions
from headlab.cli.output import print_json

Folders = Annotated[list[Path], typer.Argument(metavar="DIR [DIR ...]", show_default=False)]
Out = Annotated[Path | None, typer.Option(help="The HTML file; without it report.html in the first DIR.")]


def report(folders: Folders, talk: TalkOptions, out: Out = None, json: Json = False) -> None:
    """One self-contained HTML file with the tables and figures of one or more runs."""
    from headlab.report.page import write_report

    path = write_report(folders, out)
    if json:
        print_json({"report": path})
    else:
        print(path)
