"""Executes a tutorial, a page of Markdown with blocks of Python, and puts what each block shows below it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
LONGEST = 300  # seconds that one block may take


def names() -> list[str]:
    """The tutorials' file names, without the page that lists them."""
    return sorted(path.name for path in FOLDER.glob("*.md") if path.name != "index.md")


def execute(text: str) -> NotebookNode:
    """The page as a notebook, run from start to end in an empty folder.

    Raises nbclient's CellExecutionError, with the block and the traceback, where a block fails.
    """
    notebook = jupytext.reads(text, fmt="md")
    notebook.cells.insert(0, new_code_cell("%matplotlib inline"))  # so that figures show themselves
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=LONGEST, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute(env={**os.environ, **quiet, "MPLBACKEND": "module://matplotlib_inline.backend_inline"})
    del notebook.cells[0]
    return notebook


def as_markdown(notebook: NotebookNode) -> str:
    """The executed notebook as Markdown: text, code, and outputs as HTML, pictures or plain text."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [shown for output in cell.outputs if (shown := _shown(output))]
    return "\n\n".join(parts) + "\n"


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```" if output.name == "stdout" else ""
    data = output.get("data", {})
    if "text/html" in data:
        return _framed(data["text/html"])
    if "image/png" in data:
        return f'<div class="output"><img alt="figure" src="data:image/png;base64,{data["image/png"].strip()}"></div>'
    return f"```text\n{data['text/plain']}\n```" if "text/plain" in data else ""


def _framed(html: str) -> str:
    """HTML in one line, so that Markdown takes it as it is; pages in a frame keep their line ends."""
    line_end = "&#10;" if "<iframe" in html else " "
    return f'<div class="output">{html.strip().replace(chr(10), line_end)}</div>'
