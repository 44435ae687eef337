"""`headlab report`: one HTML file from run folders; needs no model and no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from headlab.base.progress import Progress
from headlab.commands.options import Request, option, read_names


@dataclass(frozen=True, kw_only=True)
class ReportRequest(Request):
    """One self-contained HTML file about the runs in `folders`; `figures` are formats to draw every figure in."""

    NAME: ClassVar[str] = "report"
    folders: Sequence[str | Path]
    figures: Sequence[str] | None = option(None, "png,svg,pdf: also write every figure, into DIR/figures.", read_names)

    def check(self) -> None:
        """Raise UsageError for an unknown figure format."""
        from headlab.report.pictures import check_formats

        super().check()
        check_formats(self.figures or ())


class ReportResult(NamedTuple):
    """The report and the figures drawn beside it."""

    report: Path
    figures: list[Path]


def run(request: ReportRequest, out: str | Path | None = None, progress: Progress | None = None) -> ReportResult:
    """Write the report to `out`, by default report.html in the first folder, and the figures into the folders.

    Raises DataError for a folder that holds no run, UsageError where the file cannot be, or is no report.
    """
    from headlab.report.page.page import write_report
    from headlab.report.pictures import write_figures

    request.check()
    report = write_report(request.folders, out)
    return ReportResult(report, write_figures(request.folders, request.figures) if request.figures else [])
