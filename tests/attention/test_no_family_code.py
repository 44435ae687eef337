"""headlab/attention knows no model family: no string, attribute or import in it is a model type or a model class."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from transformers.models.auto import configuration_auto, modeling_auto

FOLDER = Path(__file__).parents[2] / "headlab" / "attention"
# Model types that are ordinary words, used here in their ordinary sense.
WORDS = {"encoder", "decoder"}


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (getattr(node, "module", None) or "").split(".")
            yield from (part for alias in node.names for part in alias.name.split("."))


def forbidden() -> set[str]:
    importlib.import_module("transformers")
    types = set(configuration_auto.CONFIG_MAPPING_NAMES)
    mappings = (value for name, value in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES"))
    classes = {
        c
        for mapping in mappings
        for value in mapping.values()
        for c in (value if isinstance(value, tuple) else (value,))
    }
    return (types | classes) - WORDS


def test_attention_names_no_family() -> None:
    known = forbidden()
    assert {"bert", "llama", "BertModel", "MarianMTModel"} <= known
    files = sorted(FOLDER.glob("**/*.py"))
    assert len(files) > 10
    found = [
        (file.name, name)
        for file in files
        for name in names_in(ast.parse(file.read_text(encoding="utf-8")))
        if name in known
    ]
    assert found == []
