"""A linear probe, fitted once on the full encoder's pooled features: accuracy and cross-entropy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from headlab.base.errors import CheckpointError, DataError, UsageError
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch
from headlab.tasks.data.splits import limited
from headlab.tasks.running.evaluation import as_numbers
from headlab.tasks.running.labelled import LabelledTexts, labelled_examples, read_labelled
from headlab.tasks.running.rows import Example, collate, grouped
from headlab.tasks.running.task import Loaded, Task
from headlab.tasks.running.verdict import sum_by_example, verdict

_STRENGTH = 0.1  # scikit-learn's C: features are many and texts few


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


class Probe(Task):
    """Texts and labels judged by a logistic regression on the mean of the last hidden states.

    The mean is over all valid tokens, special ones included, as sentence encoders take it. The probe is fitted when
    the task is made, on the unmasked model, from `train_data` or else from the select split, and never again: what
    changes under a mask is the encoder alone. On the texts it was fitted on, its accuracy is too good.
    """

    name = "probe"
    purpose = "features"
    metrics = ("accuracy", "loss")
    unused = ()

    def load(self) -> Loaded:
        """Read the texts to judge; raises DataError for labels that no probe can learn."""
        if self.checkpoint.is_encoder_decoder:
            raise UsageError(
                f"{self.checkpoint.name!r} is an encoder-decoder; the probe reads a single stack.",
                "Use an encoder or a decoder (BERT, Llama, demo:minilm).",
            )
        data = read_labelled(self.options.data, self.options)
        self._train = None if self.options.train_data is None else read_labelled(self.options.train_data, self.options)
        if self._train is not None and self._train.sha256 == data.sha256 and self._train.labels == data.labels:
            raise DataError(
                f"The probe would be fitted on the texts that it is judged on ({data.name}).",
                "Leave train_data out: the probe then learns from the select half alone.",
            )
        self.labels = label_names(self._train or data)
        examples, counts = self._encode(data, limited(data.labels, self.options.limit))
        return Loaded(examples, data.name, data.sha256, counts)

    def prepare(self) -> None:
        """Fit the probe on the full encoder."""
        if self._train is None:
            chosen = set(self.split("select").tolist())
            training = [example for example in self._loaded.examples if example.id in chosen]
        else:
            training, _ = self._encode(self._train, range(len(self._train.texts)))
        count = Counter(example.label for example in training)
        scarce = [name for number, name in enumerate(self.labels) if count[number] < 2]
        if scarce:
            raise DataError(
                f"The probe's training texts hold fewer than 2 of the label {scarce[0]!r}.",
                "Give more texts, a higher limit, or train_data.",
            )
        self.n_train = len(training)
        features = np.concatenate(list(self._features(training)))
        if not np.isfinite(features).all():
            raise CheckpointError(
                f"{self.checkpoint.name!r} gives NaN features; no probe can be fitted on them.",
                "Try another dtype, such as float32.",
            )
        # Batches go by length, and so must the labels.
        by_length = [e for part in self._parts(training) for e in part]
        self.probe = fit(features, np.array([example.label for example in by_length]))

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Columns `loss` (cross-entropy, nats), `correct` and `examples`."""
        logits = self.probe(pooled(model, batch))
        return verdict(functional.cross_entropy(logits, batch.extra["label"], reduction="none"), logits, batch)

    def signature(self) -> dict[str, Any]:
        """The task's signature, with where the probe was fitted and how."""
        source = "the select split" if self._train is None else self._train.name
        fitted = {
            "on": source,
            "n": self.n_train,
            "C": _STRENGTH,
            "pooling": "mean over valid tokens, special included",
        }
        if self._train is not None:
            fitted["sha256"] = self._train.sha256
        return {**super().signature(), "labels": self.labels, "probe": fitted}

    def _encode(self, data: LabelledTexts, chosen: Any) -> tuple[list[Example], dict[str, int]]:
        return labelled_examples(data, chosen, self._identify, self.checkpoint.tokenizer, self.frame, self.max_length)

    def _identify(self, label: str, place: str) -> int:
        if label not in self.labels:
            raise DataError(
                f"{place}: the label {label!r} is not among those of the training texts.",
                f"They are {', '.join(self.labels)}.",
            )
        return self.labels.index(label)

    def _parts(self, examples: list[Example]) -> list[list[Example]]:
        return list(grouped(examples, self.options.batch_size, self.max_tokens))

    def _features(self, examples: list[Example]) -> list[np.ndarray]:
        device = next(self.network.parameters()).device
        with evaluating(self.network), torch.no_grad():
            batches = [collate(part, self.checkpoint).to(device) for part in self._parts(examples)]
            return [as_numbers(pooled(self.network, batch)) for batch in batches]


def pooled(model: nn.Module, batch: Batch) -> Tensor:
    """Mean of the last hidden states over each example's valid tokens, (examples, width), float32."""
    output = model(**batch.inputs)
    hidden = getattr(output, "last_hidden_state", output)
    if not isinstance(hidden, Tensor) or hidden.dim() != 3:
        raise UsageError(
            "The model gives no hidden states, so there is nothing to fit a probe on.",
            'Open it with purpose="features".',
        )
    valid = batch.source.valid
    total = sum_by_example(torch.where(valid[..., None], hidden.float(), 0.0).sum(dim=1), batch)
    return total / sum_by_example(valid.sum(dim=1, keepdim=True).float(), batch)


def fit(features: np.ndarray, labels: np.ndarray) -> LinearProbe:
    """Logistic regression on standardised features (examples, width), as a fixed torch function."""
    from sklearn.linear_model import LogisticRegression

    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-6, scale, 1.0)  # a constant feature tells nothing and must not be blown up
    found = LogisticRegression(C=_STRENGTH, max_iter=5000).fit((features - mean) / scale, labels)
    weight, bias = found.coef_, found.intercept_
    if len(weight) == 1:  # two labels: scikit-learn keeps the second one's logit alone
        weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
    return LinearProbe(*(torch.tensor(array, dtype=torch.float32) for array in (mean, scale, weight, bias)))


def label_names(data: LabelledTexts) -> list[str]:
    """The labels in order; DataError where there is one only, or nearly as many as texts."""
    names = sorted(
        set(data.labels), key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)
    )
    if len(names) < 2:
        raise DataError(f"{data.name} has the single label {names[0]!r}.", "Give texts with at least 2 labels.")
    if len(names) > max(2, len(data.labels) // 2):
        raise DataError(
            f"{data.name} has {len(names)} labels in {len(data.labels)} texts.",
            "Check label_column; each label needs several texts.",
        )
    return names


TASK = Probe
