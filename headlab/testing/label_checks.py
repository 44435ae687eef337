"""Checks of a label of one's own: facts, targets, and the same answer however texts are batched and padded."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import torch

from headlab import Batch, Heads, Label, LabelFamily
from headlab.testing.checks import errors_told, left_as_found, require, require_alike, require_facts
from headlab.testing.examples import example_heads, random_texts, text_batch

BESIDE_COLUMNS = ("offset_mass", "offset_hits", "target", "word_pairs", "copying")  # what a label may be about too
SUFFIXES = ("score", "null", "threshold", "n")
TOLERANCE = 1e-4


def check_label(label: Label) -> None:
    """Raise AssertionError, with a sentence, where a label breaks a rule that headlab relies on.

    The label is computed on texts of random tokens for a decoder and an encoder with random weights, without a
    tokenizer; of a family of labels, which needs a file, only the facts are checked.
    """
    require(isinstance(label, Label), f"{label!r} is no headlab.Label.")
    who = f"The label {label.name}"
    _check_facts(label, who)
    if isinstance(label, LabelFamily):
        require(label.needs and label.labels is not None, f"{who} is a family that does not say which file it needs.")
        return
    for model_type in ("llama", "bert"):
        heads = example_heads(model_type)
        known = (*heads.observe([text_batch(random_texts(1))]).columns, *BESIDE_COLUMNS)
        require(label.statistic in known, f"{who} reads a statistic that does not exist: {label.statistic!r}.")
        with errors_told(who):
            if label.target is not None and label.input is None:
                _check_target(label, who)
            _check_columns(label, heads, who)


def _check_facts(label: Label, who: str) -> None:
    require_facts(label, "label")
    require(bool(label.letter) == bool(label.colour), f"{who} has a letter or a colour, but not both.")
    require(len(label.letter) <= 1, f"{who} has more than one letter: {label.letter!r}.")
    right = not label.colour or re.fullmatch(r"#[0-9A-Fa-f]{6}", label.colour)
    require(right, f"{who} has a colour that is not written #RRGGBB: {label.colour!r}.")
    require(label.statistic != "target" or label.target is not None, f"{who} is about a target and has none.")
    require(label.reading in ("mass", "argmax"), f"{who} is read as {label.reading!r}, not as mass or argmax.")
    words = label.statistic != "word_pairs" or isinstance(label, LabelFamily) or label.input is not None
    require(words, f"{who} is about pairs of words and brings no input with them.")
    chance = label.published_chance
    require(chance is None or 0 <= chance < 1, f"{who} has a chance level outside 0 .. 1: {chance}.")
    below = chance is None or label.margin is not None or label.threshold > chance
    require(below, f"{who} has a threshold that a head reaches by chance: {label.threshold} at chance {chance}.")
    try:
        hash(label)
    except TypeError as error:
        raise AssertionError(f"{who} cannot be hashed ({error}): make its input a frozen dataclass.") from error


def _check_target(label: Label, who: str) -> None:
    """Bool of (batch, rows, key), the same for a block of queries as for all of them."""
    batch = text_batch(random_texts())
    n = batch.source.ids.shape[1]
    extra: dict[str, Any] = {}
    if label.frequencies:
        extra["frequencies"] = torch.bincount(batch.source.ids.flatten(), minlength=64)
    whole = label.on_target(batch.source, batch.source, **extra)
    shape = torch.Size((len(batch), n, n))
    right = whole.dtype == torch.bool and whole.dim() == 3 and torch.broadcast_shapes(whole.shape, shape) == shape
    require(right, f"{who} has a target of {whole.dtype} {tuple(whole.shape)}, not bool of {tuple(shape)}.")
    parts = [
        label.on_target(batch.source, batch.source, slice(start, min(start + 4, n)), **extra)
        for start in range(0, n, 4)
    ]
    rows = [part.expand(len(batch), min(4, n - start), n) for part, start in zip(parts, range(0, n, 4), strict=True)]
    same = torch.equal(torch.cat(rows, 1), whole.expand(shape))
    require(same, f"{who} has a target that differs between a block of queries and all of them.")


def _check_columns(label: Label, heads: Heads, who: str) -> None:
    texts = random_texts()
    with left_as_found(heads.subject.module, who):
        found = _columns(label, heads, [text_batch(texts)])
    for name in ("score", "null"):
        values = found[f"{label.name}_{name}"].to_numpy(dtype=float)
        inside = np.isnan(values) | (values >= -1e-6)
        require(label.statistic == "copying" or inside.all(), f"{who} has a {name} below 0.")
    again = _columns(label, heads, [text_batch(texts)])
    _compare(found, again, f"{who} gives another answer for the same texts.", 0.0)
    singles = _columns(label, heads, [text_batch([text]) for text in texts])
    _compare(found, singles, f"{who} depends on how texts are batched.", TOLERANCE)
    padded = _columns(label, heads, [text_batch(texts, padding=5)])
    _compare(found, padded, f"{who} counts padding.", TOLERANCE)


def _columns(label: Label, heads: Heads, batches: list[Batch]) -> pd.DataFrame:
    return heads.observe(batches, labels=[label])[[f"{label.name}_{suffix}" for suffix in SUFFIXES]]


def _compare(found: pd.DataFrame, other: Any, sentence: str, tolerance: float) -> None:
    require_alike(other.to_numpy(dtype=float), found.to_numpy(dtype=float), sentence, tolerance)
