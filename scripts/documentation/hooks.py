"""What mkdocs calls while it builds the site: tutorials are executed, and results/ can be linked to.

HEADLAB_DOCS_EXECUTE=0 leaves the tutorials as they are written.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from scripts.documentation import tutorials

ROOT = Path(__file__).parents[2]
LINKED = (".png", ".md", ".json")


def on_files(files: Files, config: Any) -> Files:
    """Pictures and pages of results/ become part of the site."""
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in LINKED:
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ into results/ become links within the site; tutorials get their outputs."""
    path = page.file.src_uri
    if (
        path.startswith("tutorials/")
        and not path.endswith("index.md")
        and os.environ.get("HEADLAB_DOCS_EXECUTE") != "0"
    ):
        markdown = tutorials.as_markdown(tutorials.execute(markdown))
    up = "../" * path.count("/")
    return (
        re.sub(r"\]\((?:\.\./)+results/", f"]({up}results/", markdown) if not path.startswith("results/") else markdown
    )
