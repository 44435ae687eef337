"""Translating a batch with any sequence-to-sequence model: greedy or beam search, always bounded in length."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headlab.base.errors import UsageError
from headlab.models.demo.firefox.decoding import LENGTH_FACTOR, search
from headlab.models.demo.firefox.student import FirefoxStudent

FACTOR, EXTRA, STEP = 3, 20, 16  # the limit without one given: so many tokens for each of the source, rounded up


_SET_HERE = ("num_beams", "do_sample", "max_length", "max_new_tokens", "forced_eos_token_id", "transformers_version")


@dataclass(frozen=True)
class Decoding:
    """How translations are searched; `most` is the largest number of tokens of any, None for one by source length."""

    beams: int = 1
    most: int | None = None
    longest: int | None = None  # that the model's positions allow
    forced: int | None = None  # the token that each translation begins with
    start: int | None = None  # the token that is put before it; None: the model's own

    def limit(self, n_source: int) -> int:
        """Most tokens of a translation of a source of so many tokens; it never depends on the rest of a batch."""
        by_length = -(-(FACTOR * n_source + EXTRA) // STEP) * STEP
        return min(value for value in (self.most or by_length, self.longest) if value is not None)

    def describe(self, model: nn.Module) -> dict[str, Any]:
        """What a signature says, the model's own settings for generation included."""
        facts: dict[str, Any] = {
            "beams": self.beams,
            "most_tokens": self.most,
            "forced_first_token": self.forced,
            "start_token": self.start,
        }
        if isinstance(model, FirefoxStudent):
            return facts | {"most_tokens_by_source": f"{LENGTH_FACTOR} n"}
        own = model.generation_config.to_diff_dict()  # type: ignore[union-attr, operator]
        own = {key: value for key, value in own.items() if key not in _SET_HERE}
        return facts | {"most_tokens_by_source": f"{FACTOR} n + {EXTRA}, in steps of {STEP}", "generation": own}


@dataclass(frozen=True)
class Generated:
    """Token ids of one translation, without start and end tokens, and whether it came to its end token."""

    ids: list[int]
    finished: bool


def require_decodable(model: nn.Module, name: str, beams: int) -> None:
    """Raise UsageError for a model that cannot generate, or not with beams."""
    if isinstance(model, FirefoxStudent):
        if beams > 1:
            raise UsageError(f"{name} decodes greedily, and beams = {beams} was given.", "Leave beams out.")
    elif not callable(getattr(model, "generate", None)):
        raise UsageError(f"{name!r} cannot generate text.", 'Open it as a language model (purpose="lm").')


@torch.no_grad()
def generate(model: Any, input_ids: Tensor, attention_mask: Tensor, decoding: Decoding) -> list[Generated]:
    """Translations of sources (batch, source), in their order; each is bounded by its own source's limit."""
    if isinstance(model, FirefoxStudent):
        return _by_student(model, input_ids, attention_mask, decoding)
    limits = [decoding.limit(int(n)) for n in attention_mask.sum(dim=1)]
    found: list[Generated | None] = [None] * len(limits)
    for limit in sorted(set(limits)):
        rows = torch.tensor([row for row, own in enumerate(limits) if own == limit], device=input_ids.device)
        mask = attention_mask[rows]
        seen = mask.any(dim=0)  # columns that are padding in all these rows are left out
        made = _by_transformers(model, input_ids[rows][:, seen], mask[:, seen], limit, decoding)
        for row, one in zip(rows.tolist(), made, strict=True):
            found[row] = one
    return [one for one in found if one is not None]


def _by_student(model: FirefoxStudent, ids: Tensor, mask: Tensor, decoding: Decoding) -> list[Generated]:
    rows = search(model, ids, mask, most=decoding.most)
    return [Generated(tokens, finished) for tokens, finished in rows]


def _by_transformers(model: Any, ids: Tensor, mask: Tensor, limit: int, decoding: Decoding) -> list[Generated]:
    settings = copy.deepcopy(model.generation_config)
    # No end token is forced at the limit: a translation that does not end by itself is to be seen as such.
    settings.update(
        num_beams=decoding.beams,
        do_sample=False,
        max_new_tokens=limit,
        max_length=None,
        forced_eos_token_id=None,
        num_return_sequences=1,
        return_dict_in_generate=False,
    )
    if decoding.forced is not None:
        settings.forced_bos_token_id = decoding.forced
    if decoding.start is not None:
        settings.decoder_start_token_id = decoding.start
    before = model.generation_config
    try:
        model.generation_config = (
            settings  # settings that are passed as an argument get the model's where they are None
        )
        made = model.generate(input_ids=ids, attention_mask=mask)
    finally:
        model.generation_config = before
    ends = settings.eos_token_id
    ends = set(ends if isinstance(ends, Sequence) else [ends])
    return [_until_end(row[1:], ends, settings.pad_token_id) for row in made.tolist()]  # the first is the start token


def _until_end(tokens: list[int], ends: set[int | None], padding: int | None) -> Generated:
    place = next((place for place, token in enumerate(tokens) if token in ends), None)
    if place is not None:
        return Generated(tokens[:place], True)
    while tokens and padding is not None and tokens[-1] == padding:
        tokens = tokens[:-1]
    return Generated(tokens, False)
