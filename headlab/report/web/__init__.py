"""The page's template, style and scripts, written by hand and put into each report as they are."""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent
SCRIPTS = (
    "dom",
    "colour_scales",
    "filters",
    "weights",
    "headmap",
    "detail",
    "matrix",
    "lines",
    "viewer",
    "curves",
    "tables",
    "walker",
    "compare",
    "training",
    "start",
)


@functools.cache
def script() -> str:
    """All scripts as one, in a scope of its own."""
    parts = [(FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


@functools.cache
def style() -> str:
    """The style sheet."""
    return (FOLDER / "report.css").read_text(encoding="utf-8")


def policy() -> str:
    """A content security policy under which this script and this style run, and nothing is ever loaded."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_hash(style())}'; script-src '{_hash(script())}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
