"""Pairs of token rows for a sequence-to-sequence model: source, target, and the target as the decoder is shown it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.encoding import decoder_start
from headlab.models.texts.special_tokens import padding_id, separator_id
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
    given, cut_sources = _ids(tokenizer, longest, text=written)
    wanted, cut_targets = _ids(tokenizer, longest, text_target=list(targets))
    closing = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else padding_id(tokenizer)
    pairs = []
    for place, (source, target) in enumerate(zip(given, wanted, strict=True)):
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
    padding = padding_id(tokenizer)
    special = {*tokenizer.all_special_ids, *spoken.tokens} - {tokenizer.unk_token_id}
    source = _tokens([pair.source for pair in pairs], padding, special, separator_id(tokenizer))
    target = _tokens([pair.shifted for pair in pairs], padding, special, separator_id(tokenizer), starts=True)
    labels = _padded([pair.target for pair in pairs], padding)
    given = torch.tensor(sorted({*spoken.tokens, *_forced(checkpoint.model)}), dtype=torch.long)
    counts = torch.tensor([pair.counts for pair in pairs])
    counted = target.valid & counts[:, None] & ~torch.isin(labels, given)
    inputs = {
        "input_ids": source.ids,
        "attention_mask": source.valid.long(),
        "decoder_input_ids": target.ids,
        "decoder_attention_mask": target.valid.long(),
    }
    return Batch(inputs, source, target, tuple(ids), {"labels": labels, "counted": counted})


def _forced(model: Any) -> set[int]:
    found = getattr(getattr(model, "generation_config", None), "forced_bos_token_id", None)
    return set() if found is None else {found} if isinstance(found, int) else set(found)


def _tokens(
    rows: Sequence[list[int]], padding: int, special: set[int], separator: int | None, starts: bool = False
) -> Tokens:
    ids = _padded(rows, padding)
    valid = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    marked = torch.isin(ids, torch.tensor(sorted(special), dtype=torch.long))
    if starts:
        marked[:, 0] = True
    closing = ids == separator if separator is not None else torch.zeros_like(valid)
    if starts:
        closing[:, 0] = False  # an end token that starts the decoder closes nothing
    return Tokens(ids, valid, marked & valid, closing & valid)


def _padded(rows: Sequence[list[int]], fill: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])
