"""A sequence classifier on labelled texts: accuracy and cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headlab.base.errors import DataError, UsageError
from headlab.tasks.data.splits import limited
from headlab.tasks.running.labelled import labelled_examples, read_labelled
from headlab.tasks.running.text_task import Loaded, TextTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headlab.models import Batch


class Classification(TextTask):
    """Texts and labels (.tsv, .csv, .jsonl) against the labels that the classifier knows.

    A text beyond the model's limit is split, and the logits of its parts are averaged.
    """

    name = "classification"
    title = "Classification of texts"
    text = "Chooses one of the classifier's labels for each text."
    definition = "the label with the largest logit against the right one; of a text in several parts, the mean logits"
    source = "fine-tuned classifiers as in Michel et al. 2019 (1905.10650), who prune heads of BERT on MNLI"
    loss = "-ln p(right class), in nats"
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
        numbers = [identify(data.labels[place], data.places[place], known) for place in chosen]
        examples, counts = labelled_examples(
            data, chosen, numbers, self.checkpoint.tokenizer, self.frame, self.max_length
        )
        return Loaded(examples, data.name, data.sha256, counts)

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Columns `loss` (cross-entropy, nats), `correct` and `examples`."""
        from headlab.tasks.running.verdict import text_logits, verdict

        return verdict(text_logits(model, batch, self.checkpoint.name), batch)

    def prepare(self) -> None:
        """Try one batch, so that a model of another kind is refused before anything long begins."""
        import torch

        from headlab.models.state import evaluating

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
