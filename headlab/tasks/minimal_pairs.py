"""Minimal pairs (BLiMP): does the model find the grammatical sentence more probable than the other one?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headlab.base.errors import DataError
from headlab.models.texts.rows import window_rows
from headlab.tasks.data.records import Table, digest, open_table, written_text
from headlab.tasks.data.splits import limited
from headlab.tasks.running.examples import Example
from headlab.tasks.running.text_task import Loaded, TextTask

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headlab.models import Batch

_GOOD, _BAD = "sentence_good", "sentence_bad"
_PARADIGM = ("uid", "paradigm", "phenomenon")


class MinimalPairs(TextTask):
    """Pairs of sentences, one of them grammatical (Warstadt et al. 2020); an example is a pair.

    Both sentences get the sum of the log-probabilities of their tokens: all of them where the tokenizer puts a token
    before the text, else all but the first. Special tokens after the text are neither fed nor counted. The loss is
    ln p(bad) - ln p(good). Perplexity is that of the grammatical sentences.
    """

    name = "minimal-pairs"
    title = "Minimal pairs"
    text = "Finds the grammatical sentence of a pair more probable than the other one."
    definition = "the sum of ln p over the tokens of each sentence; right where the grammatical one has the larger sum"
    source = "Warstadt et al. 2020 (BLiMP, 1912.00582)"
    loss = "ln p(bad sentence) - ln p(good sentence), in nats; below 0 where the good one is more probable"
    demo_models = ("demo:smollm2",)
    purpose = "causal-lm"
    unused = ("train_data", "label_column")
    metrics = ("accuracy", "perplexity", "loss")

    def load(self) -> Loaded:
        """Read the pairs (.jsonl with sentence_good and sentence_bad; .csv and .tsv with such a header)."""
        table, name, sha256 = self._table()
        good = table.column(self.options.text_column or _GOOD, (), "grammatical sentence", "text_column")
        bad = table.column(_BAD, (), "ungrammatical sentence", "its name sentence_bad")
        group = next((c for wanted in _PARADIGM for c in table.columns if c.lower() == wanted), None)
        groups = [str(row[group]) if group else "" for row in table.rows]
        chosen = limited(groups, self.options.limit)
        sides = []
        for column in (good, bad):
            texts = [written_text(table.rows[place][column], table.places[place], column) for place in chosen]
            sides.append(self.checkpoint.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"])
        examples, n_split, n_short = [], 0, 0
        for place, pair in zip(chosen, zip(*sides, strict=True), strict=True):
            if min(len(ids) for ids in pair) < 2:
                n_short += 1
                continue
            rows = [window_rows(ids, self.frame.before, self.max_length, side) for side, ids in enumerate(pair)]
            n_split += max(map(len, rows)) > 1
            examples.append(Example(place, (*rows[0], *rows[1]), groups[place]))
        if not examples:
            raise DataError(f"No pair of {name} has 2 tokens in both sentences.", "Give longer sentences.")
        return Loaded(examples, name, sha256, {"n_split": n_split, "n_too_short": n_short})

    def prepare(self) -> None:
        """Bound the batches by the size of their logits, and refuse models that look ahead."""
        from headlab.tasks.running.likelihood import require_causal, token_budget

        self.max_tokens = token_budget(self.checkpoint)
        require_causal(self.checkpoint, self._loaded.examples[0].rows[0].ids)

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Columns `loss`, `correct`, `nll` and `tokens` (good sentence), `nll_bad`, `tokens_bad` and `examples`."""
        import torch

        from headlab.tasks.running.likelihood import row_sums

        sums = row_sums(model, batch)
        cell = 2 * batch.extra["example"] + batch.extra["side"]  # (rows,)
        empty = torch.zeros(2 * len(batch.example_ids), dtype=sums.tokens.dtype, device=sums.tokens.device)
        good, bad = empty.index_add(0, cell, sums.log_probability).view(-1, 2).unbind(dim=1)
        tokens, tokens_bad = empty.index_add(0, cell, sums.tokens).view(-1, 2).unbind(dim=1)
        margin = (good - bad).detach()
        correct = torch.where(margin.isnan(), torch.nan, (torch.sign(margin) + 1) / 2)  # a tie is half right
        return {
            "loss": bad - good,
            "correct": correct,
            "nll": -good,
            "tokens": tokens,
            "nll_bad": -bad,
            "tokens_bad": tokens_bad,
            "examples": torch.ones_like(correct),
        }

    def _table(self) -> tuple[Table, str, str]:
        if self.options.data is not None:
            return open_table(self.options.data)
        from headlab.models.demo.texts import demo_minimal_pairs

        rows: list[dict[str, object]] = [dict(row) for row in demo_minimal_pairs()]
        places = [f"demo pair {place}" for place in range(len(rows))]
        sha256 = digest(str(row[column]) for row in rows for column in (_GOOD, _BAD))
        return Table(tuple(rows[0]), rows, places), "demo:minimal-pairs", sha256
