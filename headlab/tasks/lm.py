"""Language modelling on a text file: token-weighted perplexity and next-token accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headlab.base.errors import DataError
from headlab.models.texts.reading import read_text
from headlab.models.texts.rows import window_rows
from headlab.tasks.data.records import TEXT_NAMES, digest, files, open_table, suffix, written_text
from headlab.tasks.running.examples import Example
from headlab.tasks.running.text_task import Loaded, TextTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headlab.models import Batch

_WINDOW, _WINDOW_OWN = 512, 128  # tokens; the package's own text is short, and intervals need many windows


class LanguageModelling(TextTask):
    """One long text in windows of `max_length` tokens, in each of which every token is predicted from those before.

    Every token of the text is predicted exactly once: a window starts with the special tokens that the tokenizer puts
    before a text (BOS), or else with the last token of the window before it, as context. Special tokens after a text
    are neither fed nor predicted. An example is a window; its loss is the mean over its predicted tokens.
    """

    name = "lm"
    title = "Language modelling"
    text = "Predicts each token of a text from those before it."
    definition = "every token of the text predicted once from those before it in its window"
    source = "perplexity as in Radford et al. 2019 (GPT-2), on windows without overlap"
    loss = "mean of -ln p over the predicted tokens of a window, in nats; the task reports it as perplexity"
    demo_models = ("demo:smollm2", "demo:planted-decoder")
    purpose = "causal-lm"
    unused = ("train_data", "label_column")
    metrics = ("perplexity", "next_token_accuracy")

    def load(self) -> Loaded:
        """Read the text, all of it as one, and cut it into windows; DataError for a text under 2 tokens."""
        text, name, sha256 = self._text()
        asked, limit = self.options.max_length, self.checkpoint.max_length
        if asked is None:
            wanted = _WINDOW if self.options.data is not None else _WINDOW_OWN
            self.max_length = wanted if limit is None else min(wanted, limit)
        ids = self.checkpoint.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        rows = window_rows(ids, self.frame.before, self.max_length) if ids else ()
        if not rows or not rows[0].counted.any() or len(ids) < 2:
            raise DataError(f"{name} has fewer than 2 tokens, and nothing can be predicted.", "Give a longer text.")
        examples = [Example(place, (row,)) for place, row in enumerate(rows[: self.options.limit])]
        return Loaded(examples, name, sha256, {"n_split": int(len(rows) > 1), "n_text_tokens": len(ids)})

    def prepare(self) -> None:
        """Bound the batches by the size of their logits, and refuse models that look ahead."""
        from headlab.tasks.running.likelihood import require_causal, token_budget

        self.max_tokens = token_budget(self.checkpoint)
        require_causal(self.checkpoint, self._loaded.examples[0].rows[0].ids[:16])

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Columns `loss` (nats a token), `nll` (nats), `tokens`, `hits` and `examples`."""
        from headlab.tasks.running.likelihood import row_sums

        sums = row_sums(model, batch)
        return {
            "loss": -sums.log_probability / sums.tokens,
            "nll": -sums.log_probability,
            "tokens": sums.tokens,
            "hits": sums.hits,
            "examples": sums.tokens.new_ones(len(sums.tokens)),
        }

    def _text(self) -> tuple[str, str, str]:
        source = self.options.data
        if source is None:
            from headlab.models.demo.texts import demo_prose

            text = "\n\n".join(demo_prose())
            return text, "demo:prose", digest([text])
        paths = files(source)
        if self.options.text_column is not None or all(suffix(p) in (".jsonl", ".csv", ".tsv") for p in paths):
            table, name, sha256 = open_table(source, (self.options.text_column,))
            column = table.column(self.options.text_column, TEXT_NAMES, "text", "text_column")
            rows = zip(table.rows, table.places, strict=True)
            return "\n\n".join(written_text(row[column], place, column) for row, place in rows), name, sha256
        texts = [read_text(path) for path in paths]
        return "\n\n".join(texts), ",".join(path.name for path in paths), digest(texts)
