"""The main job on the demo checkpoints: the commands that a user would type, one after the other, and one report."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

# Folder under --out, then the command; the texts are those that come with headlab.
# Limits keep the whole within a few minutes on two cores; heads are chosen on one half and judged on the other.
RUNS: tuple[tuple[str, str], ...] = (
    ("minilm", "dump demo:minilm --maps 2 --max-length 64 --heads L0H2,L2H9,L3H0,L5H0"),
    ("distilbert-tagger", "dump demo:distilbert-tagger --maps 2 --max-length 64 --heads L0H3,L4H2,L4H9,L5H0"),
    ("smollm2", "dump demo:smollm2 --maps 2 --max-length 64 --limit 24 --heads L16H0,L18H6,L12H0,L0H0"),
    (
        "minilm-probe",
        "sweep demo:minilm --task probe --scores gradient,ablation --limit 240 --split 80:160"
        " --budgets 0,10%,20%,30%,50%,70%,90%",
    ),
    (
        "smollm2-minimal-pairs",
        "sweep demo:smollm2 --task minimal-pairs --scores gradient --limit 120 --budgets 0,10%,20%,30%,50%",
    ),
    (
        "smollm2-lm",
        "sweep demo:smollm2 --task lm --scores gradient --max-length 128 --limit 12 --budgets 0,10%,20%,30%,50%",
    ),
)


def run_demo(out: Path, *, quiet: bool = False) -> Path:
    """Run every command of the demo that is not finished, then write the report, and return its path.

    Raises what the commands raise: a CheckpointError names the pip command for a checkpoint that is not installed.
    """
    from headlab.report.page.page import write_report

    begun = time.monotonic()
    folders = [out / name for name, _ in RUNS]
    for folder, (_, command) in zip(folders, RUNS, strict=True):
        _run_one([*shlex.split(command), "--out", str(folder)], quiet=quiet)
    report = write_report(folders, out / "report.html")
    if not quiet:
        print(f"all done in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return report


def _run_one(arguments: list[str], *, quiet: bool) -> None:
    import typer

    from headlab.cli.application import application
    from headlab.cli.errors import INTERRUPTED

    print(f"\n$ headlab {shlex.join(arguments)}", flush=True)
    given = [*arguments, *(["--quiet"] if quiet else [])]
    code = application()(args=given, prog_name="headlab", standalone_mode=False)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise typer.Exit(code)
