"""What the files of labels and metrics say of themselves, read without importing them, which would load torch."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from headlab.labels._chance import chance_level

FIELDS = ("definition", "source")


def label_facts(path: Path) -> dict[str, Any]:
    """`definition`, `threshold`, `chance` and `source` of the Label that the file at `path` makes.

    The threshold is a number where the file has one, else text: `3.8 / math.log(128)`, `chance + 0.1`. What is only
    known with the label's own file stands as `{relation}`.
    """
    fields, constants = _call(path, "Label")
    facts: dict[str, Any] = {name: _text(fields[name], constants) for name in FIELDS}
    facts["threshold"] = _threshold(fields, constants)
    permuted = ast.unparse(_resolved(fields["published_chance"], constants)) != "None"
    facts["chance"] = chance_level(path.stem, _text(fields["statistic"], constants), permuted=permuted)
    return facts


def metric_definition(path: Path) -> str:
    """`definition` of the Metric that the file at `path` makes."""
    fields, constants = _call(path, "Metric", "BestAtOne")
    return _text(fields["definition"], constants)


def _call(path: Path, *names: str) -> tuple[dict[str | None, ast.expr], dict[str, ast.expr]]:
    """The keywords of the first call of one of the names in a file, and the constants of the module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    )
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {keyword.arg: keyword.value for keyword in next(calls).keywords}, constants


def _threshold(fields: dict[str | None, ast.expr], constants: dict[str, ast.expr]) -> float | str:
    margin = fields.get("margin")
    found = _resolved(margin if margin is not None else fields["threshold"], constants)
    if margin is not None:
        return f"chance + {ast.unparse(found)}"
    return found.value if isinstance(found, ast.Constant) else ast.unparse(found)  # type: ignore[return-value]


def _resolved(value: ast.expr, constants: dict[str, ast.expr]) -> ast.expr:
    return constants.get(value.id, value) if isinstance(value, ast.Name) else value


def _text(value: ast.expr, constants: dict[str, ast.expr]) -> str:
    value = _resolved(value, constants)
    if isinstance(value, ast.JoinedStr):
        return "".join(_text(part, constants) for part in value.values)
    if isinstance(value, ast.FormattedValue):
        inner = _resolved(value.value, constants)
        return str(inner.value) if isinstance(inner, ast.Constant) else f"{{{ast.unparse(inner)}}}"
    return str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)
