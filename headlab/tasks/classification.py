"""A sequence classifier on labelled texts: accuracy and cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from headlab.base.errors import DataError, UsageError
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch
from headlab.tasks.data.splits import limited
from headlab.tasks.running.labelled import labelled_examples, read_labelled
from headlab.tasks.running.task import Loaded, Task
from headlab.tasks.running.verdict import mean_by_example, verdict


class Classification(Task):
    """Texts and labels (.tsv, .csv, .jsonl) against the labels that the classifier knows.

    A text beyond the model's limit is split, and the logits of its parts are averaged.
    """

    name = "classification"
    purpose = "classification"
    metrics = ("accuracy", "loss")

    def load(self) -> Loaded:
        """Read the texts; raises DataError for a label that the classifier does not have."""
        if self.checkpoint.is_encoder_decoder:
            raise UsageError(
                f"{self.checkpoint.name!r} is an encoder-decoder; classification needs a single stack.",
                "Use a classifier such as BERT, RoBERTa, DistilBERT or a decoder with one.",
            )
        known = label_ids(self.network)
        data = read_labelled(self.options.data, self.options)
        chosen = limited(data.labels, self.options.limit)
        examples, counts = labelled_examples(
            data,
            chosen,
            lambda label, place: identify(label, place, known),
            self.checkpoint.tokenizer,
            self.frame,
            self.max_length,
        )
        return Loaded(examples, data.name, data.sha256, counts)

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Columns `loss` (cross-entropy, nats), `correct` and `examples`."""
        output = model(**batch.inputs)
        logits = getattr(output, "logits", output)
        if not isinstance(logits, Tensor) or logits.dim() != 2:
            raise UsageError(
                f"{self.checkpoint.name!r} gives no logits for a whole text.",
                "Name a sequence classifier, or use the task probe.",
            )
        logits = mean_by_example(logits.float(), batch)
        return verdict(functional.cross_entropy(logits, batch.extra["label"], reduction="none"), logits, batch)

    def prepare(self) -> None:
        """Try one batch, so that a model of another kind is refused before anything long begins."""
        with evaluating(self.network), torch.no_grad():
            self.losses(self.network, next(iter(self.batches())))


def label_ids(model: nn.Module) -> dict[str, int]:
    """The classifier's label names and their ids; UsageError for a model that does not choose one of several."""
    config = getattr(model, "config", None)
    names: Mapping[int, str] = getattr(config, "id2label", None) or {}
    if getattr(config, "problem_type", None) in ("regression", "multi_label_classification") or len(names) < 2:
        raise UsageError(
            "The model does not choose one label out of several.",
            "Name a single-label classifier, or use the task probe.",
        )
    return {str(name): int(number) for number, name in names.items()}


def identify(label: str, place: str, known: Mapping[str, int]) -> int:
    """A label's id: by its name, by its name in other case, or as a number; DataError for an unknown one."""
    if label in known:
        return known[label]
    folded = {name.casefold(): number for name, number in known.items()}
    if label.casefold() in folded:
        return folded[label.casefold()]
    if label.isdecimal() and int(label) in known.values():
        return int(label)
    raise DataError(
        f"{place}: the classifier has no label {label!r}.",
        f"Give data with its labels: {', '.join(known)} (or 0 to {len(known) - 1}).",
    )


TASK = Classification
