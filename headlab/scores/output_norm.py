"""Mean norm of what the head adds to the residual stream (compare the average head output norm, arXiv 2504.03889)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headlab.base.errors import UnsupportedModelError
from headlab.scores.measures.losses import batches_of

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.scores import Progress
    from headlab.tasks import Task

VARIANTS = {"layer-normalised": {"layer_normalised": True}}


def score(
    heads: Heads, task: Task, *, split: str = "select", layer_normalised: bool = False,
    table: pd.DataFrame | None = None, progress: Progress | None = None, **_: Any,
) -> np.ndarray:  # fmt: skip
    """Mean over real tokens of ||z_h W_h||, (heads,), in units of the residual stream: the statistic `output_norm`.

    `layer_normalised` divides by the mean over the heads of the layer, since streams grow with depth. With a head
    `table` the column is taken from it. It needs no loss. Raises DataError where the split has no examples,
    UnsupportedModelError where a layer's projection is not one plain matrix.
    """
    if table is None or "output_norm" not in table.columns:
        heads._need_gates("weighed")
        n_examples = len(task.split(split))
        if progress:
            progress(0, n_examples, "norms of outputs")
        table = heads.observe(batches_of(task, split), statistics=["output_norm"])
        if progress:
            progress(n_examples, n_examples, "norms of outputs")
    norms = table["output_norm"].reindex(heads.index)
    if norms.isna().all():
        raise UnsupportedModelError("The output projections are not plain matrices, so that what a head adds is "
                                    "unknown.", "Use another score with this model, such as ablation.")  # fmt: skip
    if layer_normalised:
        norms = norms / norms.groupby(level=["kind", "layer"]).transform("mean")
    return norms.to_numpy(dtype=float)
