"""`headlab demo`: the main job on the demo checkpoints, one command after the other, and one report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from headlab.base.progress import Progress
from headlab.commands import dump, report, sweep
from headlab.commands.dump import DumpRequest, DumpResult
from headlab.commands.options import Request
from headlab.commands.sweep import SweepRequest, SweepResult

# Folder under --out, then what is asked for; the texts are those that come with headlab.
# Limits keep the whole within a few minutes on two cores; heads are chosen on one half and judged on the other.
REQUESTS: tuple[tuple[str, DumpRequest | SweepRequest], ...] = (
    ("minilm", DumpRequest(model="demo:minilm", maps=2, max_length=64, heads="L0H2,L2H9,L3H0,L5H0")),
    (
        "distilbert-tagger",
        DumpRequest(model="demo:distilbert-tagger", maps=2, max_length=64, heads="L0H3,L4H2,L4H9,L5H0"),
    ),
    ("smollm2", DumpRequest(model="demo:smollm2", maps=2, max_length=64, limit=24, heads="L16H0,L18H6,L12H0,L0H0")),
    (
        "minilm-probe",
        SweepRequest(
            model="demo:minilm",
            task="probe",
            scores="gradient,ablation",
            limit=240,
            split="80:160",
            budgets="0,10%,20%,30%,50%,70%,90%",
        ),
    ),
    (
        "smollm2-minimal-pairs",
        SweepRequest(model="demo:smollm2", task="minimal-pairs", limit=120, budgets="0,10%,20%,30%,50%"),
    ),
    (
        "smollm2-lm",
        SweepRequest(model="demo:smollm2", task="lm", max_length=128, limit=12, budgets="0,10%,20%,30%,50%"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class DemoRequest(Request):
    """The main job on three small real models, about five minutes on two cores."""

    NAME: ClassVar[str] = "demo"


class Command(NamedTuple):
    """One command of the demo: what it asks for and the folder it writes."""

    request: DumpRequest | SweepRequest
    out: Path

    def run(self, progress: Progress | None = None) -> DumpResult | SweepResult:
        """Carry it out; what is done is not done twice."""
        if isinstance(self.request, DumpRequest):
            return dump.run(self.request, self.out, progress)
        return sweep.run(self.request, self.out, progress)


def commands(out: str | Path) -> Iterator[Command]:
    """The commands of the demo, in order."""
    for name, request in REQUESTS:
        yield Command(request, Path(out) / name)


def write_report(out: str | Path) -> Path:
    """One report of every folder of the demo."""
    folders = [command.out for command in commands(out)]
    return report.run(report.ReportRequest(folders=folders), Path(out) / "report.html").report


def run(request: DemoRequest, out: str | Path, progress: Progress | None = None) -> Path:
    """Run every command of the demo that is not finished, then write the report, and return its path.

    Raises what the commands raise: a CheckpointError names the pip command for a checkpoint that is not installed.
    """
    request.check()
    for command in commands(out):
        command.run(progress)
    return write_report(out)
