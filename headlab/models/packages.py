"""Packages that only some checkpoints need."""

from __future__ import annotations

import importlib.util

from headlab.base.errors import CheckpointError


def require_packages(what: str, packages: tuple[str, ...]) -> None:
    """Raise CheckpointError with the pip command for those that are not installed."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        noun = "package" if len(missing) == 1 else "packages"
        raise CheckpointError(f"{what} needs the {noun} {', '.join(missing)}.", f"Run: pip install {' '.join(missing)}")
