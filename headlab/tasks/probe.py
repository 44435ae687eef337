"""A linear probe, fitted once on the full encoder's pooled features: accuracy and cross-entropy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.base.errors import CheckpointError, DataError, UsageError
from headlab.tasks.data.splits import limited
from headlab.tasks.running.labelled import LabelledTexts, labelled_examples, read_labelled
from headlab.tasks.running.text_task import Loaded, TextTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headlab.models import Batch
    from headlab.tasks.running.examples import Example


class Probe(TextTask):
    """Texts and labels judged by a logistic regression on the mean of the last hidden states.

    The mean is over all valid tokens, special ones included, as sentence encoders take it. The probe is fitted when
    the task is made, on the unmasked model, from `train_data` or else from the select split, and never again: what
    changes under a mask is the encoder alone. On the texts it was fitted on, its accuracy is too good.
    """

    name = "probe"
    title = "Linear probe"
    text = "Reads the label of a text off its features, with a linear classifier fitted once on the full encoder."
    definition = "logistic regression (C = 0.1) on the standardised mean of the last hidden states over a text's tokens"
    source = "probes after Alain and Bengio 2016 (1610.01644); mean pooling as in sentence encoders"
    loss = "-ln p(right class) of the fixed probe, in nats"
    demo_models = ("demo:minilm", "demo:smollm2", "demo:distilbert-tagger")
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
        from headlab.tasks.running.collating import grouped
        from headlab.tasks.running.linear_probe import fit

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
        parts = list(grouped(training, self.options.batch_size, self.max_tokens))
        features = self._features(parts)
        if not np.isfinite(features).all():
            raise CheckpointError(
                f"{self.checkpoint.name!r} gives NaN features; no probe can be fitted on them.",
                "Try another dtype, such as float32.",
            )
        # Batches go by length, and so must the labels.
        self.probe = fit(features, np.array([example.label for part in parts for example in part]))

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Columns `loss` (cross-entropy, nats), `correct` and `examples`."""
        from headlab.tasks.running.linear_probe import pooled
        from headlab.tasks.running.verdict import verdict

        return verdict(self.probe(pooled(model, batch)), batch)

    def signature(self) -> dict[str, Any]:
        """The task's signature, with where the probe was fitted and how."""
        from headlab.tasks.running.linear_probe import STRENGTH

        source = "the select split" if self._train is None else self._train.name
        fitted = {
            "on": source,
            "n": self.n_train,
            "C": STRENGTH,
            "pooling": "mean over valid tokens, special included",
        }
        if self._train is not None:
            fitted["sha256"] = self._train.sha256
        return {**super().signature(), "labels": self.labels, "probe": fitted}

    def _encode(self, data: LabelledTexts, chosen: Sequence[int]) -> tuple[list[Example], dict[str, int]]:
        for place in chosen:
            if data.labels[place] not in self.labels:
                cause = (
                    f"{data.places[place]}: the label {data.labels[place]!r} is not among those of the training texts."
                )
                raise DataError(cause, f"They are {', '.join(self.labels)}.")
        numbers = [self.labels.index(data.labels[place]) for place in chosen]
        return labelled_examples(data, chosen, numbers, self.checkpoint.tokenizer, self.frame, self.max_length)

    def _features(self, parts: list[list[Example]]) -> np.ndarray:
        """Features of the full encoder, (examples, width), a batch for each part."""
        import torch

        from headlab.models.state import device_of, evaluating
        from headlab.tasks.running.collating import collate
        from headlab.tasks.running.linear_probe import pooled
        from headlab.tasks.running.measuring import as_numbers

        device = device_of(self.network)
        with evaluating(self.network), torch.no_grad():
            batches = (collate(part, self.checkpoint).to(device) for part in parts)
            return np.concatenate([as_numbers(pooled(self.network, batch)) for batch in batches])


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
