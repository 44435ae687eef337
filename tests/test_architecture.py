"""The arrows between the parts of headlab run one way, and light modules stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "headlab"

# What each part may import besides itself and errors; "registry" and "chance_levels" are leaves like errors.
ARROWS = {
    "errors": set(),
    "registry": set(),
    "chance_levels": set(),
    "tables": {"registry"},
    "models": {"registry", "tables"},
    "report": {"registry", "tables"},
    # labels: the column makers, never a plugin; report: the shape of stored maps, and how things show themselves
    "attention": {"labels", "models", "report", "tables", "registry"},
    "labels": {"models", "tables", "registry", "chance_levels"},
    "tasks": {"models", "tables", "registry"},
    "scores": {"attention", "tasks", "labels", "models", "tables", "registry"},
    "pruning": {"attention", "tasks", "labels", "scores", "models", "tables", "registry"},
}
TOP = {"cli", "demo", "__main__", "__init__"}
HEAVY = {"torch", "transformers", "matplotlib"}


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _part(module: str) -> str:
    """`headlab.models.batch` -> `models`; `headlab` -> `__init__`."""
    return module.split(".")[1] if "." in module else "__init__"


def _is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imports(path: Path, *, types_too: bool = False, lazy_too: bool = True) -> list[tuple[str, int]]:
    """(module, line) of every import; those under TYPE_CHECKING and those inside functions on request."""
    found: list[tuple[str, int]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.extend((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: headlab uses absolute imports only"
            found.extend(_from(node))
        if isinstance(node, ast.stmt) and _is_type_checking(node) and not types_too:
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not lazy_too:
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def _from(node: ast.ImportFrom) -> list[tuple[str, int]]:
    """`from headlab import tables` names the module headlab.tables, not headlab."""
    if node.module == "headlab":
        return [(f"headlab.{alias.name}", node.lineno) for alias in node.names]
    return [(node.module or "", node.lineno)]


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_imports_follow_the_arrows(path: Path) -> None:
    part = _part(_name(path))
    if part in TOP:
        return
    allowed = ARROWS[part] | {part, "errors"}
    wrong = [
        f"{path.name}:{line} imports {module}"
        for module, line in _imports(path)
        if module.startswith("headlab") and _part(module) not in allowed
    ]
    assert not wrong, f"{part} may import only {sorted(allowed)}: {wrong}"


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_nothing_imports_the_command_line(path: Path) -> None:
    if _part(_name(path)) in {"cli", "demo", "__main__"}:
        return
    assert not [m for m, _ in _imports(path, types_too=True) if m.startswith(("headlab.cli", "headlab.demo"))]


@pytest.mark.parametrize("path", [p for p in _modules() if _part(_name(p)) in {"tables", "report"}], ids=_name)
def test_tables_and_report_never_import_torch(path: Path) -> None:
    heavy = [m for m, _ in _imports(path, types_too=True) if m.split(".")[0] in {"torch", "transformers"}]
    assert not heavy


@pytest.mark.parametrize("folder", ["labels", "scores", "tasks", "tasks/metrics"])
def test_plugins_do_not_import_each_other(folder: str) -> None:
    package = "headlab." + folder.replace("/", ".")
    plugins = {_name(p) for p in (PACKAGE / folder).glob("*.py") if not p.name.startswith("_")}
    for path in (PACKAGE / folder).glob("*.py"):
        if _name(path) in plugins:
            others = [m for m, _ in _imports(path) if m in plugins - {_name(path)}]
            assert not others, f"{path.name} imports the {package} plugins {others}"


@pytest.mark.parametrize("path", [p for p in _modules() if _part(_name(p)) == "attention"], ids=_name)
def test_attention_imports_no_plugin(path: Path) -> None:
    assert not [m for m, _ in _imports(path, types_too=True) if m.startswith("headlab.labels.")]


@pytest.mark.parametrize("module", ["headlab", "headlab.cli", "headlab.tables", "headlab.report"])
def test_importing_is_light(module: str) -> None:
    heavy = sorted(HEAVY if module in {"headlab", "headlab.cli"} else HEAVY - {"matplotlib"})
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


def test_files_stay_readable_in_one_sitting() -> None:
    lengths = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in _modules())
    assert lengths[len(lengths) // 2] < 120


def test_functions_are_short() -> None:
    """Functions of headlab stay under 35 lines, docstring and signature included, with room for a few exceptions."""
    long = []
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > 45:
                long.append(f"{_name(path)}.{node.name}")
    assert not long


def test_no_file_is_called_utils_and_every_module_has_a_docstring() -> None:
    for path in _modules():
        assert path.stem not in {"utils", "helpers", "common", "misc"}, path
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path} lacks a docstring"
