"""Heads with a label go first: minus the label's score, so that the strongest are the least important."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headlab.base.errors import DataError
from headlab.scores.measures.losses import batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task

SUFFIX = "label"


def score(
    heads: Heads, task: Task, *, label: str, split: str = "select", seed: int = 0, table: pd.DataFrame | None = None,
    progress: Progress | None = None, **_: Any,
) -> np.ndarray:  # fmt: skip
    """-`<label>_score`, (heads,): written `label:induction`. A sweep removes the smallest, so the label's heads first.

    What is asked is "what if the induction heads go?"; the control is random heads from the same layers
    (`matched_random`), not random heads of the model. Heads for which the label is undefined have NaN and go last.
    With a head `table` that has the column nothing is run; else the split's texts (or the texts that the label
    brings) are observed. Raises UsageError for an unknown label, DataError where no head has a score.
    """
    column = f"{label}_score"
    if table is None or column not in table.columns:
        table = heads.observe(batches_of(task, split), [label], statistics=[], seed=seed)
    if progress:
        progress(1, 1, f"the label {label}")
    values = table[column].reindex(heads.index).astype("float64")
    if values.isna().all():
        raise DataError(f"The label {label} is undefined for every head on these texts.",
                        "Give texts that have what it looks for, or take another label.")  # fmt: skip
    return -values.to_numpy()
