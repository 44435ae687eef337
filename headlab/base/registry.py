"""Plugins by name: each file of a plugin folder is one label, score, task or metric."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
from typing import Any

from headlab.base.errors import unknown_name


class Registry:
    """The plugins of one package, found by listing its folder.

    A file `minimal_pairs.py` is the plugin `minimal-pairs` where `hyphenated`, else `minimal_pairs`;
    look-ups accept both spellings. Nothing is imported until a plugin is asked for.
    """

    def __init__(self, package: str, noun: str, *, hyphenated: bool = False, kind: type | None = None) -> None:
        self.package = package
        self.noun = noun
        self.hyphenated = hyphenated
        self.kind = kind
        self._folder = Path(__file__).parent.parent.joinpath(*package.split(".")[1:])

    def names(self) -> list[str]:
        """All plugin names, sorted."""
        files = (info.name for info in pkgutil.iter_modules([str(self._folder)]) if not info.ispkg)
        beside = {self.noun, "context"} if self.kind else set()  # what plugins are made of and called with
        return sorted(self._public(name) for name in files if not name.startswith("_") and name not in beside)

    def load(self, name: str) -> Any:
        """The plugin's module, or its class where plugins are of a `kind`.

        Raises UsageError with the closest name and the list where there is none.
        """
        public = self._public(name.replace("-", "_"))
        if public not in self.names():
            raise unknown_name(self.noun, name, self.names())
        module = importlib.import_module(f"{self.package}.{public.replace('-', '_')}")
        if self.kind is None:
            return module
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
        return next(value for value in own if isinstance(value, type) and issubclass(value, self.kind))

    def summary(self, name: str) -> str:
        """First line of the plugin's docstring, read without importing it."""
        source = (self._folder / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
        return (ast.get_docstring(ast.parse(source)) or "").split("\n")[0]

    def _public(self, name: str) -> str:
        return name.replace("_", "-") if self.hyphenated else name
