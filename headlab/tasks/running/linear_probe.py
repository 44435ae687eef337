"""A linear classifier of a model's pooled features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from headlab.base.errors import UsageError
from headlab.models.texts.batch import Batch

STRENGTH = 0.1  # scikit-learn's C: features are many and texts few


@dataclass(frozen=True)
class LinearProbe:
    """A fixed classifier of features (examples, width): standardise, then one linear layer."""

    mean: Tensor  # (width,)
    scale: Tensor  # (width,)
    weight: Tensor  # (labels, width)
    bias: Tensor  # (labels,)

    def __call__(self, features: Tensor) -> Tensor:
        """Logits (examples, labels)."""
        mean, scale, weight, bias = (t.to(features.device) for t in (self.mean, self.scale, self.weight, self.bias))
        return functional.linear((features - mean) / scale, weight, bias)


def pooled(model: nn.Module, batch: Batch) -> Tensor:
    """Mean of the last hidden states over each example's valid tokens, (examples, width), float32."""
    output = model(**batch.inputs)
    hidden = getattr(output, "last_hidden_state", output)
    if not isinstance(hidden, Tensor) or hidden.dim() != 3:
        cause = "The model gives no hidden states, so there is nothing to fit a probe on."
        raise UsageError(cause, 'Open it with purpose="features".')
    valid = batch.source.valid
    total = batch.sum_by_example(torch.where(valid[..., None], hidden.float(), 0.0).sum(dim=1))
    return total / batch.sum_by_example(valid.sum(dim=1, keepdim=True).float())


def fit(features: np.ndarray, labels: np.ndarray) -> LinearProbe:
    """Logistic regression on standardised features (examples, width), as a fixed torch function."""
    from sklearn.linear_model import LogisticRegression

    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-6, scale, 1.0)  # a constant feature tells nothing and must not be blown up
    fitted = LogisticRegression(C=STRENGTH, max_iter=5000).fit((features - mean) / scale, labels)
    weight, bias = fitted.coef_, fitted.intercept_
    if len(weight) == 1:  # two labels: scikit-learn keeps the second one's logit alone
        weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
    return LinearProbe(*(torch.tensor(array, dtype=torch.float32) for array in (mean, scale, weight, bias)))
