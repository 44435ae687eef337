"""What a model scored on a task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Evaluation:
    """What a model scored on a task.

    `examples` has one row per example (index: example id) and one float64 column per sufficient statistic; `values`
    has the metrics, the task's main one first. A forward pass that ended in NaN is NaN here.
    """

    examples: pd.DataFrame
    values: dict[str, float]
    signature: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.examples)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in self.values.items()) + f" ({len(self)} examples)"

    __repr__ = __str__
