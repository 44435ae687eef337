"""The import graph of headlab: one way, without circles, with few arrows; light modules stay light.

Every import counts: at the top of a file, inside a function, and for types alone. `python scripts/house.py` prints the
figures.
"""

from __future__ import annotations

import ast
import importlib
import statistics
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from scripts import house

ROOT = Path(__file__).parent.parent
# From the ground up: each part imports only what stands on floors below its own.
FLOORS = (
    {"base"},
    {"runs", "metrics"},
    {"models"},
    {"labels", "tasks"},
    {"attention"},
    {"scores"},
    {"pruning", "report"},
    {"commands"},
    {"headlab"},  # the public names
    {"cli", "testing"},  # testing uses the public names, as the tests of users do
    {"__main__"},
)
PLUGINS = ("labels", "metrics", "scores", "tasks")
WITHOUT_TORCH = ("base", "report", "runs")
MOST_ARROWS = 45


def _edges() -> list[tuple[str, str]]:
    return sorted(house.internal().edges)


def _is_plugin(module: str) -> bool:
    """Whether a module is a plugin that comes with headlab."""
    parts = module.split(".")
    return len(parts) == 3 and parts[1] in PLUGINS and parts[2] in _built_in(parts[1])


@cache
def _built_in(folder: str) -> set[str]:
    registry = getattr(importlib.import_module(f"headlab.{folder}"), folder.upper())
    return {name.replace("-", "_") for name in registry.built_in()}


def _python(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in house.folder().rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


def test_no_file_is_called_utils_and_every_module_has_a_docstring() -> None:
    for name, tree in house.trees().items():
        assert name.rsplit(".", 1)[-1] not in {"utils", "helpers", "common", "misc"}, name
        assert ast.get_docstring(tree), f"{name} lacks a docstring"


def test_there_is_no_circle_at_any_level() -> None:
    assert house.circles() == {}


def test_there_are_few_arrows_between_the_parts() -> None:
    assert len(house.arrows()) <= MOST_ARROWS


def test_every_part_stands_on_a_floor() -> None:
    assert {house.part(name) for name in house.internal()} <= set().union(*FLOORS)


def test_no_arrow_goes_up() -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    crossing = [(a, b) for a, b in _edges() if house.part(a) != house.part(b)]
    assert [(a, b) for a, b in crossing if floor[house.part(a)] <= floor[house.part(b)]] == []


@pytest.mark.parametrize("part", WITHOUT_TORCH)
def test_light_parts_never_import_torch(part: str) -> None:
    heavy = [(a, b) for a, b in house.imports().edges if house.part(a) == part and b in ("torch", "transformers")]
    assert heavy == []
    modules = ", ".join(name for name in sorted(house.internal()) if house.part(name) == part)
    assert _python(f"import sys, {modules}; print('torch' in sys.modules)") == "False"


def test_attention_imports_no_plugin_and_no_report() -> None:
    imported = [b for a, b in _edges() if house.part(a) == "attention"]
    assert [module for module in imported if _is_plugin(module) or house.part(module) == "report"] == []


def test_no_plugin_imports_another() -> None:
    assert [(a, b) for a, b in _edges() if _is_plugin(a) and _is_plugin(b)] == []


def test_nothing_imports_the_command_line() -> None:
    assert {house.part(a) for a, b in _edges() if house.part(b) == "cli"} <= {"cli", "__main__"}


def test_outsiders_use_no_private_names() -> None:
    assert house.strangers() == []


@pytest.mark.parametrize("module", ["headlab", "headlab.cli", "headlab.commands", "headlab.runs", "headlab.report"])
def test_importing_is_light(module: str) -> None:
    heavy = sorted({"torch", "transformers", "matplotlib"})
    assert _python(f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])") == "[]"


def test_the_public_names_exist_and_are_listed() -> None:
    _python(
        "import headlab\nfor name in headlab.__all__: getattr(headlab, name)\n"
        "assert set(headlab.__all__) <= set(dir(headlab))"
    )


def test_files_and_functions_are_short() -> None:
    """A file is read in one sitting; a function ends within a page, its docstring included."""
    lines = {name: text.count("\n") for name, text in house.sources().items()}
    assert statistics.median(lines.values()) <= 85 and max(lines.values()) <= 400
    assert [
        f"{name}.{function.name}"
        for name, tree in house.trees().items()
        for function in house.functions(tree)
        if (function.end_lineno or 0) - function.body[0].lineno + 1 > 45
    ] == []


def test_the_formatter_decides() -> None:
    assert house.switches(*(ROOT / name for name in ("headlab", "scripts", "tests")))["skip"] == 0
