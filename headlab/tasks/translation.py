"""Translation: BLEU and chrF of greedy or beam search against references, and the loss on the references themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.base.errors import DataError, UsageError, unknown_name
from headlab.metrics.overlap import Overlap
from headlab.models.demo.parallel import demo_pairs
from headlab.models.texts.rows import Row
from headlab.runs.files import TRANSLATIONS
from headlab.tasks.data.languages import languages, pair_of_name
from headlab.tasks.data.parallel import Parallel, read_pairs, read_testset, read_together
from headlab.tasks.data.splits import limited
from headlab.tasks.running.examples import Example
from headlab.tasks.running.options import Options
from headlab.tasks.running.text_task import Loaded, TextTask
from headlab.tasks.running.translations import Translated, Translations

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from headlab.base.progress import Progress
    from headlab.models import Batch
    from headlab.tasks.running.evaluation import Evaluation

WARNINGS = ("length_ratio", "empty_outputs", "unfinished")
REFERENCE = ("nll", "next_token_accuracy")  # from the references alone, without decoding
METRICS = {
    "bleu": ("bleu", "chrf", *REFERENCE, *WARNINGS),
    "chrf": ("chrf", "bleu", *REFERENCE, *WARNINGS),
    "ter": ("ter", "bleu", "chrf", *REFERENCE, *WARNINGS),
    "nll": REFERENCE,
}


@dataclass(frozen=True)
class TranslationOptions(Options):
    """What a translation may be asked for beside the options of every task."""

    source: str | Path | None = None  # a file of lines, or a table with text_column
    reference: str | Path | None = None  # its translation, or a table with label_column
    testset: str | None = None  # of sacrebleu, such as wmt14
    pair: str | None = None  # such as en-de
    metric: str = "bleu"  # the main one; nll needs no decoding
    beams: int = 1
    max_new_tokens: int | None = None
    prefix: str | None = None  # written before each source (T5); None: what the model was trained with
    source_language: str | None = None  # as a multilingual model writes it
    target_language: str | None = None
    lowercase: bool = False  # BLEU and chrF without case (TER never looks at it)
    tokenize: str | None = None  # of BLEU; None: what sacrebleu chooses for the language


class Translation(TextTask):
    """Sources and references, judged by what the model makes of the sources, and by what it thinks of the references.

    An example is a line. The loss is the mean negative log-probability of a reference's tokens, each given those
    before it; language tokens, with which decoding is forced to begin, are not judged. Blank lines are kept and
    counted: a blank source has a blank translation, and neither it nor a blank reference has a loss (it is 0, of no
    tokens). A source beyond the model's limit, or `max_length` tokens, is cut, and so is a reference in the loss alone.
    """

    name = "translation"
    title = "Translation"
    text = "Translates sentences, and says how probable it finds their references."
    definition = "BLEU and chrF of greedy or beam search, and ln p of each reference token given those before it"
    source = "Voita et al. 2019 (1905.09418) and Michel et al. 2019 (1905.10650); sacrebleu by Post 2018 (1804.08771)"
    loss = "mean of -ln p over the tokens of the reference, in nats; the metric nll weighs all tokens the same"
    demo_models = ("demo:firefox-en-pt", "demo:firefox-pt-en")
    purpose = "lm"
    metrics = METRICS["bleu"]
    options: TranslationOptions

    @classmethod
    def read_options(cls, settings: Mapping[str, Any]) -> Options:
        """Options from keyword arguments; UsageError for unknown ones and for those that exclude one another."""
        options = TranslationOptions.of(cls.name, settings, cls.unused)
        assert isinstance(options, TranslationOptions)
        _check(options)
        return options

    def load(self) -> Loaded:
        """Read the pairs and encode them; DataError for data, UsageError for models that cannot be used."""
        from headlab.models.decoding import require_decodable
        from headlab.tasks.running.pairs import encode

        options, checkpoint = self.options, self.checkpoint
        if not checkpoint.is_encoder_decoder:
            raise UsageError(
                f"{checkpoint.name!r} is no encoder-decoder, and the task translation needs one.",
                "Use Marian, NLLB, mBART, T5, BART or demo:firefox-en-pt.",
            )
        require_decodable(self.network, checkpoint.name, options.beams)
        data = self._data()
        self.metrics = METRICS[options.metric]
        self.spoken = languages(
            checkpoint,
            data.pair or options.pair or pair_of_name(checkpoint.name),
            prefix=options.prefix,
            source=options.source_language,
            target=options.target_language,
        )
        target = (data.pair or options.pair or pair_of_name(checkpoint.name)).partition("-")[2].lower()[:2]
        n_references = len(data.references[0])
        self._overlap = Overlap(
            self.metrics,
            lowercase=options.lowercase,
            tokenize=options.tokenize,
            language=target,
            n_references=n_references,
        )
        chosen = limited([""] * len(data), options.limit)
        self.sources, self.references = data.sources, data.references
        first = [data.references[place][0] for place in chosen]
        sources = [data.sources[place] for place in chosen]
        rows, n_cut = encode(checkpoint, sources, first, self.spoken, self.max_length)
        self._pairs = dict(zip(chosen, rows, strict=True))
        counts = {
            "n_cut": n_cut,
            "n_blank_sources": sum(not text.strip() for text in sources),
            "n_blank_references": sum(not text.strip() for text in first),
        }
        if not any(pair.counts for pair in rows):
            raise DataError(f"{data.name} has no line with text on both sides.", "Give other files.")
        return Loaded([_example(place, self._pairs[place].source) for place in chosen], data.name, data.sha256, counts)

    def prepare(self) -> None:
        """Bound the batches by the size of their logits."""
        from headlab.models.decoding import Decoding
        from headlab.tasks.running.likelihood import token_budget

        self.max_tokens = token_budget(self.checkpoint)
        self.decoding = Decoding(
            self.options.beams, self.options.max_new_tokens, self.max_length, self.spoken.forced, self.spoken.start
        )
        self._kept = Translations()
        self._keeps = False

    def collate(self, examples: Sequence[Example]) -> Batch:
        """Sources with what the decoder is shown of their references."""
        from headlab.tasks.running.pairs import collate

        ids = [example.id for example in examples]
        return collate([self._pairs[example] for example in ids], ids, self.checkpoint, self.spoken)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Mean nll of each reference's tokens, (examples of the batch,), nats; nothing is decoded."""
        from headlab.models.state import device_of

        return self._on_reference(model, batch.to(device_of(model)))["loss"]

    def statistics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Columns of the loss, and, unless the metric is nll, of sacrebleu's statistics and of the warnings."""
        import torch

        columns = self._on_reference(model, batch)
        if self.options.metric == "nll":
            return columns
        translated = self._translate(model, batch)
        texts = [each.translation for each in translated]
        counts = self._overlap.columns(texts, [self.references[example] for example in batch.examples])
        decoded = np.array([bool(each.source.strip()) for each in translated])
        counts |= {
            "decoded": decoded,
            "empty": decoded & np.array([not text.strip() for text in texts]),
            "unfinished": decoded & np.array([not each.finished for each in translated]),
        }
        return columns | {name: torch.from_numpy(values.astype(np.float64)) for name, values in counts.items()}

    @contextlib.contextmanager
    def keeping(self, folder: str | Path, key: str) -> Iterator[None]:
        """Inside, translations are read from and written to `translations/<key>.jsonl` of the folder."""
        if self.options.metric == "nll":
            yield
            return
        self._kept, self._keeps = Translations(Path(folder) / TRANSLATIONS / f"{key}.jsonl"), True
        try:
            yield
            self._kept.sort()
        finally:
            self._kept, self._keeps = Translations(), False

    def evaluate(self, split: str = "all", progress: Progress | None = None) -> Evaluation:
        """Measure the model as it is now; DataError where no line of the split has text on both sides."""
        if not any(self._pairs[int(place)].counts for place in self.split(split)):
            raise DataError(
                f"No line of the split {split!r} has text on both sides.", "Give more lines, or another split."
            )
        return super().evaluate(split, progress)

    def translations(self, split: str = "all") -> pd.DataFrame:
        """What the model makes of the split's sources as it is now, masks included; indexed by example."""
        import pandas as pd
        import torch

        from headlab.models.state import evaluating

        translated: list[Translated] = []
        with evaluating(self.network), torch.no_grad():
            for batch in self.batches(split):
                translated += self._translate(self.network, batch)
        return pd.DataFrame(translated).set_index("example").sort_index()

    def signature(self) -> dict[str, Any]:
        """The task's signature, with how was decoded, the languages, and sacrebleu's own signatures."""
        facts: dict[str, Any] = {"prefix": self.spoken.prefix, "languages": [self.spoken.source, self.spoken.target]}
        if self.options.metric != "nll":
            facts |= {"decoding": self.decoding.describe(self.network), "sacrebleu": self._overlap.signatures()}
        return {**super().signature(), **facts}

    def _on_reference(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        from headlab.tasks.running.likelihood import target_sums

        sums = target_sums(model, batch)
        nll = -sums.log_probability
        columns = {"loss": nll / sums.tokens.clamp(min=1), "nll": nll, "tokens": sums.tokens, "hits": sums.hits}
        return columns | {"examples": sums.tokens.new_ones(len(sums.tokens))}

    def _translate(self, model: nn.Module, batch: Batch) -> list[Translated]:
        """Translations of a batch, those that are kept from there."""
        missing = [row for row, example in enumerate(batch.examples) if not (self._keeps and self._is_kept(example))]
        new = {
            batch.examples[row]: each for row, each in zip(missing, self._decode(model, batch, missing), strict=True)
        }
        if self._keeps:
            self._kept.add(new.values())
        return [new[example] if example in new else self._kept[example] for example in batch.examples]

    def _is_kept(self, example: int) -> bool:
        """Whether an example's translation is kept, and of this very pair."""
        if example not in self._kept:
            return False
        kept = self._kept[example]
        return (kept.source, kept.reference) == (self.sources[example], self.references[example][0])

    def _decode(self, model: nn.Module, batch: Batch, rows: Sequence[int]) -> list[Translated]:
        import torch

        from headlab.models.decoding import generate

        sources = [self.sources[batch.examples[row]] for row in rows]
        written = torch.tensor([row for row, text in zip(rows, sources, strict=True) if text.strip()], dtype=torch.long)
        ids, mask = (batch.inputs[name][written] for name in ("input_ids", "attention_mask"))
        generated = iter(generate(model, ids, mask, self.decoding) if len(written) else [])
        translated = []
        for row, source in zip(rows, sources, strict=True):
            example = batch.examples[row]
            text, n_tokens, finished = "", 0, True
            if source.strip():
                each = next(generated)
                text, n_tokens, finished = self._text(each.ids), len(each.ids), each.finished
            translated.append(Translated(example, source, self.references[example][0], text, n_tokens, finished))
        return translated

    def _text(self, ids: Sequence[int]) -> str:
        """Ids as text on one line."""
        text = self.checkpoint.tokenizer.decode(list(ids), skip_special_tokens=True)
        return " ".join(text.split("\n")).strip()

    def _data(self) -> Parallel:
        options, columns = self.options, (self.options.text_column, self.options.label_column)
        if options.testset is not None:
            return read_testset(options.testset, options.pair or pair_of_name(self.checkpoint.name))
        if options.source is not None and options.reference is not None:
            return read_pairs(options.source, options.reference, columns, options.pair or "")
        if options.data is not None:
            return read_together(options.data, columns, options.pair or "")  # type: ignore[arg-type]
        pair = options.pair or pair_of_name(self.checkpoint.name) or "en-pt"
        if pair[:5] not in ("en-pt", "pt-en"):
            raise DataError(
                f"The sentences of the package are English and Portuguese, not {pair}.",
                "Give --source and --reference files, or a --testset.",
            )
        pairs = demo_pairs()
        sources, references = zip(*(pairs if pair.startswith("en") else [(b, a) for a, b in pairs]), strict=True)
        return Parallel(list(sources), [(text,) for text in references], f"demo:parallel/{pair}", pair)


def _check(options: TranslationOptions) -> None:
    if options.metric not in METRICS:
        raise unknown_name("metric of the task translation:", options.metric, METRICS)
    if (options.source is None) != (options.reference is None):
        there, missing = ("source", "reference") if options.reference is None else ("reference", "source")
        raise UsageError(f"A {there} is given without a {missing}.", f"Give both, --{there} and --{missing}.")
    given = [name for name in ("data", "source", "testset") if getattr(options, name) is not None]
    if len(given) > 1:
        raise UsageError(f"The options {given[0]} and {given[1]} both name the data.", "Leave one out.")
    if options.metric == "nll":
        idle = {
            "beams": options.beams != 1,
            "max_new_tokens": options.max_new_tokens is not None,
            "lowercase": options.lowercase,
            "tokenize": options.tokenize is not None,
        }
        for name in (name for name, given in idle.items() if given):
            raise UsageError(
                f"The option {name} is about translations, and the metric nll makes none.",
                f"Leave out {name}, or take the metric bleu.",
            )
    options._require_range("beams", options.beams, 1)
    options._require_range("max_new_tokens", options.max_new_tokens, 1)


def _example(place: int, source: Sequence[int]) -> Example:
    ids = np.array(source, dtype=np.int64)
    nothing = np.zeros(len(ids), dtype=bool)
    return Example(place, (Row(ids, nothing, nothing),))
