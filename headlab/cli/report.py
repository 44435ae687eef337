"""`headlab report`: one HTML file from the folders of runs; needs no model and no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headlab.cli.options import Json, TalkOptions, names
from headlab.cli.output import print_json, print_paths

Folders = Annotated[list[Path], typer.Argument(metavar="DIR [DIR ...]", show_default=False)]
Out = Annotated[Path | None, typer.Option(help="The HTML file; without it report.html in the first DIR.")]
Figures = Annotated[
    str | None, typer.Option(help="png,svg,pdf: also write every figure, into DIR/figures.", show_default=False)
]


def report(
    folders: Folders, talk: TalkOptions, out: Out = None, figures: Figures = None, json: Json = False
) -> None:  # fmt: skip
    """One self-contained HTML file with the tables and figures of one or more runs."""
    from headlab.report.page.page import write_report
    from headlab.report.pictures import check_formats, write_figures

    formats = check_formats(names(figures))
    path = write_report(folders, out)
    drawn = write_figures(folders, formats) if formats else []
    if json:
        print_json({"report": path, "figures": drawn})
    else:
        print_paths([path, *drawn])
