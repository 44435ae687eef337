"""Plugins by name: each file of a plugin folder is one label, score, task or metric."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from headlab.base.errors import unknown_name


class Registry:
    """The plugins of one package, found by listing its folder.

    A file `minimal_pairs.py` is the plugin `minimal-pairs` where `hyphenated`, else `minimal_pairs`;
    look-ups accept both spellings. Nothing is imported until a plugin is asked for.
    """

    def __init__(self, package: str, noun: str, *, hyphenated: bool = False) -> None:
        self.package = package
        self.noun = noun
        self.hyphenated = hyphenated
        self._folder = Path(__file__).parent.parent.joinpath(*package.split(".")[1:])

    def names(self) -> list[str]:
        """All plugin names, sorted."""
        files = (info.name for info in pkgutil.iter_modules([str(self._folder)]) if not info.ispkg)
        return sorted(self._public(name) for name in files if not name.startswith("_"))

    def load(self, name: str) -> ModuleType:
        """The plugin's module; raises UsageError with the closest name and the list where there is none."""
        public = self._public(name.replace("-", "_"))
        if public not in self.names():
            raise unknown_name(self.noun, name, self.names())
        return importlib.import_module(f"{self.package}.{public.replace('-', '_')}")

    def summary(self, name: str) -> str:
        """First line of the plugin's docstring, read without importing it."""
        source = (self._folder / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
        return (ast.get_docstring(ast.parse(source)) or "").split("\n")[0]

    def _public(self, name: str) -> str:
        return name.replace("_", "-") if self.hyphenated else name
