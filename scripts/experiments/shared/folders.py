"""Where experiments find the repository and the public data."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def public_data(*needed: str, otherwise: str = "") -> Path:
    """The folder that HEADLAB_DATA names; ends the program, naming what is needed, where it names none."""
    folder = os.environ.get("HEADLAB_DATA")
    if not folder:
        raise SystemExit(f"Set HEADLAB_DATA to a folder with {', '.join(needed)}{otherwise and f', or {otherwise}'}.")
    return Path(folder)
