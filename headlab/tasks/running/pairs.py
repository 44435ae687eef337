"""Pairs of token rows for a sequence-to-sequence model: source, target, and the target as the decoder is shown it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from headlab.models.texts.batch import Batch
from headlab.models.texts.padding import decoder_start, model_inputs, padded, padded_tokens
from headlab.models.texts.special_tokens import padding_id
from headlab.tasks.data.languages import Languages

if TYPE_CHECKING:
    from headlab.models import Checkpoint


@dataclass(frozen=True)
class TokenPair:
    """One example's rows of ids; nothing of the target counts where either text is blank."""

    source: list[int]
    target: list[int]  # what is to be predicted
    shifted: list[int]  # what the decoder is shown, of the same length
    counts: bool


def encode(
    checkpoint: Checkpoint, sources: Sequence[str], targets: Sequence[str], spoken: Languages, longest: int | None
) -> tuple[list[TokenPair], int]:
    """Token rows of texts and their translations, and how many rows were cut at `longest` tokens."""
    tokenizer = checkpoint.tokenizer
    written = [spoken.prefix + text if text.strip() else "" for text in sources]
    source_ids, cut_sources = _ids(tokenizer, longest, text=written)
    target_ids, cut_targets = _ids(tokenizer, longest, text_target=list(targets))
    closing = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else padding_id(tokenizer)
    pairs = []
    for place, (source, target) in enumerate(zip(source_ids, target_ids, strict=True)):
        source, target = source or [closing], target or [closing]  # a tokenizer may add nothing to a blank text
        blank = not (sources[place].strip() and targets[place].strip())
        pairs.append(TokenPair(source, target, _shifted(checkpoint.model, target), not blank))
    return pairs, cut_sources + cut_targets


def _ids(tokenizer: Any, longest: int | None, **texts: list[str]) -> tuple[list[list[int]], int]:
    rows = tokenizer(**texts, verbose=False)["input_ids"]
    if longest is None or max(map(len, rows)) <= longest:
        return rows, 0
    cut = tokenizer(**texts, verbose=False, truncation=True, max_length=longest)["input_ids"]
    return cut, sum(len(row) > longest for row in rows)


def _shifted(model: Any, target: list[int]) -> list[int]:
    """The target moved right behind the start token, in the way of the model where it has one of its own."""
    own = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if callable(own):
        return own(labels=torch.tensor([target]))[0].tolist()
    return [decoder_start(model), *target[:-1]]


def collate(pairs: Sequence[TokenPair], ids: Sequence[int], checkpoint: Checkpoint, spoken: Languages) -> Batch:
    """A batch of one row an example, padded on the right.

    `extra` has `labels` (rows, target), the tokens to predict, and `counted` (rows, target), which of them count:
    not the tokens that name a language, since decoding is given them.
    """
    tokenizer = checkpoint.tokenizer
    marks = {*tokenizer.all_special_ids, *spoken.tokens} - {tokenizer.unk_token_id}
    sources, shifted = [pair.source for pair in pairs], [pair.shifted for pair in pairs]
    source = padded_tokens(tokenizer, sources, [[token in marks for token in row] for row in sources])
    starts = [[True, *(token in marks for token in row[1:])] for row in shifted]
    target = padded_tokens(tokenizer, shifted, starts)
    target.separator[:, 0] = False  # an end token that starts the decoder closes nothing
    labels = padded([pair.target for pair in pairs], padding_id(tokenizer))
    forced = getattr(getattr(checkpoint.model, "generation_config", None), "forced_bos_token_id", None)
    forced = () if forced is None else (forced,) if isinstance(forced, int) else forced
    unjudged = torch.tensor(sorted({*spoken.tokens, *forced}), dtype=torch.long)
    counts = torch.tensor([pair.counts for pair in pairs])
    counted = target.valid & counts[:, None] & ~torch.isin(labels, unjudged)
    inputs = model_inputs(checkpoint.model, source, target)
    return Batch(inputs, source, target, tuple(ids), {"labels": labels, "counted": counted})
