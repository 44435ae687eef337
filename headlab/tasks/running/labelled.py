"""Texts with labels: read from data or from the package's own sentences, turned into examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headlab.base.errors import DataError
from headlab.models.texts.rows import text_rows
from headlab.models.texts.special_tokens import AddedTokens
from headlab.tasks.data.records import LABEL_NAMES, TEXT_NAMES, Source, cell_text, digest, open_table, written_text
from headlab.tasks.running.examples import Example
from headlab.tasks.running.options import Options


@dataclass(frozen=True)
class LabelledTexts:
    """Texts and their labels as they are written in the data, with the place of each for messages."""

    texts: list[str]
    labels: list[str]
    places: list[str]
    name: str
    sha256: str


def read_labelled(source: Source | None, options: Options) -> LabelledTexts:
    """Labelled texts from files, or the sentences that come with the package where there is no source."""
    if source is None:
        from headlab.models.demo.texts import demo_sentences

        pairs = demo_sentences()
        texts, labels = [text for text, _ in pairs], [str(label) for _, label in pairs]
        places = [f"demo sentence {place}" for place in range(len(pairs))]
        return LabelledTexts(texts, labels, places, "demo:sentences", digest([*texts, *labels]))
    table, name, sha256 = open_table(source, (options.text_column, options.label_column))
    text = table.column(options.text_column, TEXT_NAMES, "text", "text_column")
    label = table.column(options.label_column, LABEL_NAMES, "label", "label_column")
    texts, labels = [], []
    for row, place in zip(table.rows, table.places, strict=True):
        texts.append(written_text(row[text], place, text))
        value = row[label]
        labels.append(cell_text(int(value) if isinstance(value, bool) else value, place, label).strip())
        if not labels[-1]:
            raise DataError(f"{place} has no label.", "Give every text a label, or leave the row out.")
    return LabelledTexts(texts, labels, table.places, name, sha256)


def labelled_examples(
    data: LabelledTexts,
    chosen: Sequence[int],
    numbers: Sequence[int],
    tokenizer: Any,
    frame: AddedTokens,
    max_length: int | None,
) -> tuple[list[Example], dict[str, int]]:
    """Examples of the chosen texts, and how many texts were split (too long) or left out (under 2 tokens).

    `numbers` are the ids of their labels. Raises DataError where no text is left.
    """
    encoded = tokenizer([data.texts[place] for place in chosen], add_special_tokens=False, verbose=False)["input_ids"]
    examples: list[Example] = []
    n_split = n_short = 0
    for place, ids, label in zip(chosen, encoded, numbers, strict=True):
        rows = text_rows(ids, frame, max_length)
        if not ids or len(rows[0]) < 2:
            n_short += 1
            continue
        n_split += len(rows) > 1
        examples.append(Example(place, rows, data.labels[place], label))
    if not examples:
        raise DataError(f"No text of {data.name} has 2 tokens or more.", "Give longer texts, or another text column.")
    return examples, {"n_split": n_split, "n_too_short": n_short}
