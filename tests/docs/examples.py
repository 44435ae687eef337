"""Runs a page's examples: its Python in order in one namespace, its `$ headlab` lines as the command line would."""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path

from sybil import Document, Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

from headlab.cli import run

PROMPT = "$ headlab "


def run_console(example: Example) -> None:
    """Every `$ headlab` line of a console block exits with 0; other lines are what it prints, or commands not run."""
    joined = str(example.parsed).replace("\\\n", " ")
    for line in joined.splitlines():
        if line.startswith(PROMPT):
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = run(shlex.split(line.removeprefix(PROMPT), comments=True))
            assert code == 0, f"{line}\nexit code {code}\n{said.getvalue()}"


def examples_of(path: Path) -> Document:
    """The page with its examples, in order; `<!--- skip: next -->` leaves one out."""
    parsers = [PythonCodeBlockParser(), CodeBlockParser(language="console", evaluator=run_console), SkipParser()]
    return Sybil(parsers=parsers, path=str(path.parent)).parse(path)
