"""The figures of the house: parts, floors, arrows, circles, lines, helpers of one caller, switches of the formatter.

    python scripts/house.py

It measures the headlab that Python finds: put another one first on PYTHONPATH to compare. Every import counts: at the
top of a file, inside a function, and for types alone.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import networkx

SWITCH = re.compile(r"# fmt: (skip|off)")
Arrows = Counter[tuple[str, str]]


def folder() -> Path:
    """The folder of the package that is measured."""
    spec = importlib.util.find_spec("headlab")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@cache
def sources() -> dict[str, str]:
    """The text of every module of the package by its name."""
    package = folder()
    texts = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        texts[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return texts


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of every module of the package by its name."""
    return {name: ast.parse(text) for name, text in sources().items()}


@cache
def imports() -> networkx.DiGraph:
    """An edge from each module to each module of the package, or package outside it, that it imports anywhere."""
    graph = grimp.build_graph(
        "headlab", include_external_packages=True, exclude_type_checking_imports=False, cache_dir=None
    )
    edges = networkx.DiGraph()
    edges.add_nodes_from(graph.modules)
    for module in graph.modules:
        edges.add_edges_from((module, other) for other in graph.find_modules_directly_imported_by(module))
    return edges


def internal() -> networkx.DiGraph:
    """The edges of `imports` within the package."""
    return imports().subgraph([name for name in imports() if name.split(".")[0] == "headlab"])


def part(module: str) -> str:
    """The entry of the package's folder that a module belongs to; `headlab` for the package's own file."""
    return module.split(".")[1] if "." in module else "headlab"


def arrows() -> Arrows:
    """How many imports go from one part to another."""
    return Counter((part(a), part(b)) for a, b in internal().edges if part(a) != part(b))


def packages() -> set[str]:
    """The names of all packages."""
    return {name.rsplit(".", 1)[0] for name in internal() if "." in name}


def siblings(package: str) -> networkx.DiGraph:
    """An edge from each entry of a package to each other one that anything in it imports."""
    prefix = f"{package}."
    inside = [
        (a.removeprefix(prefix).split(".")[0], b.removeprefix(prefix).split(".")[0])
        for a, b in internal().edges
        if a.startswith(prefix) and b.startswith(prefix)
    ]
    return networkx.DiGraph((a, b) for a, b in inside if a != b)


def circles() -> dict[str, list[list[str]]]:
    """Circles of imports among modules, and among the entries of every package."""
    levels = {"modules": internal()}
    for package in sorted(packages()):
        levels[package] = siblings(package)
    found = {
        level: [sorted(c) for c in networkx.strongly_connected_components(g) if len(c) > 1]
        for level, g in levels.items()
    }
    return {level: sorted(each) for level, each in found.items() if each}


def floors() -> int:
    """On how many floors the parts stand, where those in one circle share theirs."""
    return networkx.dag_longest_path_length(networkx.condensation(networkx.DiGraph(list(arrows())))) + 1


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Every function and method of a module, inner ones included."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def is_private(name: str) -> bool:
    """Whether a name begins with one underscore."""
    return name.startswith("_") and not name.startswith("__")


def helpers() -> tuple[list[str], list[str]]:
    """All private functions, and those that are named exactly once besides where they are defined."""
    uses: Counter[tuple[str, str]] = Counter()
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                uses[module, node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[module, node.attr] += 1
    private = [(module, f.name) for module, tree in trees().items() for f in functions(tree) if is_private(f.name)]
    return [".".join(each) for each in private], [".".join(each) for each in private if uses[each] == 1]


def strangers() -> list[str]:
    """Private names of one part that another part imports, or reads off an object that it did not define."""
    private: dict[str, set[str]] = {}
    for module, tree in trees().items():
        private.setdefault(part(module), set()).update(filter(is_private, _defined(tree)))
    found = []
    for module, tree in trees().items():
        others = {name for owner, names in private.items() if owner != part(module) for name in names}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headlab."):
                names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
                if part(str(node.module)) != part(module) and any(map(is_private, names)):
                    found.append(f"{module}:{node.lineno} imports {', '.join(filter(is_private, names))}")
            elif isinstance(node, ast.Attribute) and node.attr in others - private[part(module)]:
                found.append(f"{module}:{node.lineno} reads {node.attr}")
    return found


def _defined(tree: ast.AST) -> Iterator[str]:
    """Names that a module's functions, classes and assignments define, those of objects included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.attr if isinstance(node, ast.Attribute) else node.id


def switches(*folders: Path) -> Counter[str]:
    """Lines that switch the formatter off, by what they say."""
    texts = (path.read_text(encoding="utf-8") for each in folders for path in each.rglob("*.py"))
    return Counter(word for text in texts for word in SWITCH.findall(text))


def main() -> None:
    """Print the figures."""
    lines = [text.count("\n") for text in sources().values()]
    lengths = [(f.end_lineno or 0) - f.lineno + 1 for tree in trees().values() for f in functions(tree)]
    private, lonely = helpers()
    within = sum(siblings(name).number_of_edges() for name in packages() - {"headlab"})
    each = [f"   {level}: {', '.join(circle)}" for level, group in circles().items() for circle in group]
    print(folder())
    print(f"parts {len({part(name) for name in internal()})}, floors {floors()}, arrows {len(arrows())}")
    print(f"arrows of siblings inside the parts {within}")
    print("\n".join([f"circles {len(each)}, of modules {len(circles().get('modules', []))}", *each]))
    print(f"files {len(lines)}, lines {sum(lines)}, median {statistics.median(lines):.0f}, longest {max(lines)}")
    print(f"functions {len(lengths)}, median lines {statistics.median(lengths):.0f}, longest {max(lengths)}")
    print(f"private helpers {len(private)}, with one caller {len(lonely)}")
    print(f"uses of private names of another part {len(strangers())}")
    print(f"switches of the formatter {sum(switches(folder()).values())}")


if __name__ == "__main__":
    main()
