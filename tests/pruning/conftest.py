"""Makes the seven planted heads importable by name, here and in the tests of scores."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
