"""The import graph of headlab: one way, without circles, with few arrows; light modules stay light.

Every import counts: at the top of a file, inside a function, and for types alone.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import networkx
import pytest

PACKAGE = Path(__file__).parent.parent / "headlab"


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.fixture(scope="module")
def imports() -> networkx.DiGraph:
    """An edge from each module to each module of headlab that it imports anywhere."""
    graph = grimp.build_graph("headlab", exclude_type_checking_imports=False, cache_dir=None)
    found = networkx.DiGraph()
    found.add_nodes_from(graph.modules)
    for module in graph.modules:
        found.add_edges_from((module, other) for other in graph.find_modules_directly_imported_by(module))
    return found


def test_every_folder_is_a_package() -> None:
    assert not [folder for folder in {path.parent for path in _modules()} if not (folder / "__init__.py").is_file()]


def test_no_file_is_called_utils_and_every_module_has_a_docstring() -> None:
    for path in _modules():
        assert path.stem not in {"utils", "helpers", "common", "misc"}, path
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path} lacks a docstring"


@pytest.mark.parametrize("module", ["headlab", "headlab.cli", "headlab.runs", "headlab.report"])
def test_importing_is_light(module: str) -> None:
    heavy = sorted({"torch", "transformers", "matplotlib"})
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_public_names_exist_and_are_listed() -> None:
    code = (
        "import headlab\nfor name in headlab.__all__: getattr(headlab, name)\n"
        "assert set(headlab.__all__) <= set(dir(headlab))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_functions_are_short() -> None:
    """Functions of headlab stay under 35 lines, docstring and signature included, with room for a few exceptions."""
    long = []
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > 45:
                long.append(f"{_name(path)}.{node.name}")
    assert not long
