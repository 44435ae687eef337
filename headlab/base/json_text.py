"""JSON of what numbers come in: numpy values and arrays, sets and paths included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_json(value: Any) -> str:
    """JSON text of nested mappings and sequences, numpy numbers, arrays and paths included."""
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=1)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)
