"""`headlab demo` on the screen: each command as one would type it, and what it prints."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from headlab.cli import dump, sweep
from headlab.cli.options import Json, TalkOptions
from headlab.cli.output import Progress, print_json
from headlab.commands import demo as demo_commands
from headlab.commands.dump import DumpResult

Out = Annotated[Path, typer.Option("--out", help="Folder for the results.")]


def demo(talk: TalkOptions, out: Out = Path("headlab-demo"), json: Json = False) -> None:
    """The main job on three small real models: about five minutes on two cores; what is done is not done twice."""
    begun = time.monotonic()
    for command in demo_commands.commands(out):
        print(f"\n$ {command.request.command_line(command.out)}", flush=True)
        with Progress(quiet=talk.quiet) as progress:
            result = command.run(progress)
        if isinstance(result, DumpResult):
            dump.show(result, talk)
        else:
            sweep.show_curves(result)
    report = demo_commands.write_report(out)
    if not talk.quiet:
        print(f"all done in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    if json:
        print_json({"report": report})
    else:
        print(f"\nThe report: {report}")
