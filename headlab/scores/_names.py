"""Names of scores and their variants (`gradient:per-token`, `label:induction`), read without loading torch."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from headlab.base.errors import UsageError, unknown_name
from headlab.base.registry import Registry

SCORES: Registry[Any] = Registry("headlab.scores", "score")
COMMON = ("heads", "task", "split", "ablation", "seed", "progress", "table")  # what `score` itself hands over


def variants(name: str) -> dict[str, dict[str, Any]]:
    """The variants of a score, suffix -> settings; {} where it has none. The score is not imported."""
    return _constant(name, "VARIANTS") or {}


def free_suffix(name: str) -> str | None:
    """The setting that takes the whole suffix of a name (`label` in `label:induction`), where there is one."""
    return _constant(name, "SUFFIX")


def require_score(name: str) -> None:
    """Raise UsageError, with the closest name and the list, unless `score` takes this name."""
    base, _, suffix = name.partition(":")
    public = base.replace("-", "_")
    if public not in SCORES.names():
        raise unknown_name("score", base, SCORES.names())
    settings_of(public, suffix)


def settings_of(base: str, suffix: str) -> dict[str, Any]:
    """The settings that a suffix stands for; several are joined by colons. UsageError for an unknown one."""
    setting = free_suffix(base)
    if setting == "label":
        if not suffix:
            raise UsageError("The score label needs the name of a label.", "Write label:induction, say.")
        return {setting: suffix}
    known = variants(base)
    settings: dict[str, Any] = {}
    for part in filter(None, suffix.split(":")):
        if part not in known:
            if not known:
                raise UsageError(f"The score {base} has no variants, so {base}:{suffix} means nothing.",
                                 f"Write {base}.")  # fmt: skip
            raise unknown_name(f"variant of {base}", part, known)
        settings |= known[part]
    return settings


def check_settings(plugin: ModuleType, given: Mapping[str, Any]) -> None:
    """Raise UsageError for settings that a score does not take."""
    parameters = inspect.signature(plugin.score).parameters.values()
    known = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in COMMON]
    for name in given:
        if name not in known:
            short = plugin.__name__.rpartition(".")[2]
            if not known:
                raise UsageError(f"The score {short} takes no setting {name!r}.", "It has none.")
            raise unknown_name(f"setting of {short}", name, known)


def _constant(name: str, constant: str) -> Any:
    """The value of a literal constant of a score's file."""
    path = Path(__file__).with_name(f"{name.replace('-', '_')}.py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == constant for t in node.targets):
            return ast.literal_eval(node.value)
    return None
