"""Texts as windows of one length: the input of measures that depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from headlab.base.errors import DataError, UsageError
from headlab.models.texts.batch import Batch, Tokens
from headlab.models.texts.padding import model_inputs

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint


def token_windows(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    *,
    length: int = 64,
    bos: bool = False,
    limit: int | None = 100,
    batch_size: int = 20,
) -> list[Batch]:
    """Windows of exactly `length` tokens, cut from all texts one after the other without special tokens.

    With `bos` the first of them is the tokenizer's start token. Gu et al. 2024 (2410.10781) take 100 windows of 64.
    Raises UsageError where there is no start token, DataError where the texts give no window.
    """
    tokenizer = checkpoint.tokenizer
    start = getattr(tokenizer, "bos_token_id", None)
    if bos and start is None:
        raise UsageError(f"The tokenizer of {checkpoint.name!r} has no start token.", "Take windows without one.")
    bare = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    stream = [token for text in bare for token in text]
    room = length - bos
    rows = [stream[place : place + room] for place in range(0, len(stream) - room + 1, room)][:limit]
    if not rows:
        raise DataError(f"The texts have {len(stream)} tokens, and a window takes {room}.", "Give longer texts.")
    batches = []
    for first in range(0, len(rows), batch_size):
        ids = torch.tensor([[start, *row] if bos else row for row in rows[first : first + batch_size]])
        special, separator = (torch.zeros_like(ids, dtype=torch.bool) for _ in range(2))
        special[:, :1] = bos
        tokens = Tokens(ids, ~separator, special, separator)
        examples = tuple(range(first, first + len(ids)))
        batches.append(Batch(model_inputs(checkpoint.model, tokens), tokens, examples=examples))
    return batches
