"""Size of the weights that carry the head's output: no data needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headlab.attention.change.value_weights import value_weights
from headlab.base.errors import UnsupportedModelError

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.tasks import Task

VARIANTS = {"value-output": {"value_output": True}}


def score(heads: Heads, task: Task, *, value_output: bool = False, **_: Any) -> np.ndarray:
    """Frobenius norm of W_O's rows that read the head, (heads,), in units of weights.

    `value_output` takes the norm of W_V W_O of the head instead, which does not change when a factor moves from one
    to the other; query heads that share values share W_V. Texts and task play no part. Raises UnsupportedModelError
    where a layer's projection is not one plain matrix, or where W_V is not found.
    """
    values = value_weights(heads) if value_output and heads.tier in (1, 2) else None
    if value_output and values is None:
        raise UnsupportedModelError("The values of this model are not seen.", "Use magnitude, without :value-output.")
    norms = []
    for site in heads.sites:
        weight = site.weight()  # (head, value_dim, model)
        if weight is None:
            raise UnsupportedModelError(f"The output projection of {site.name} is not one plain matrix.",
                                        "Use another score with this model, such as ablation.")  # fmt: skip
        weight = weight.double()
        if values is not None:
            weight = torch.matmul(values[site.key].to(weight), weight)
        norms.append(torch.linalg.matrix_norm(weight).cpu().numpy())
    return np.concatenate(norms)
