"""`headlab demo`: the main job on the demo checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headlab.cli.options import Json, TalkOptions
from headlab.cli.output import print_json

Out = Annotated[Path, typer.Option("--out", help="Folder for the results.")]


def demo(talk: TalkOptions, out: Out = Path("headlab-demo"), json: Json = False) -> None:
    """The main job on three small real models: about five minutes on two cores; what is done is not done twice."""
    from headlab.commands.demo import run_demo

    report = run_demo(out, quiet=talk.quiet)
    if json:
        print_json({"report": report})
    else:
        print(f"\nThe report: {report}")
