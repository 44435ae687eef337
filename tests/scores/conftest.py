"""Makes the planted heads, and the tiny models of the other tests, importable by name."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "pruning", HERE.parent / "attention"):
    sys.path.insert(0, str(folder))
