"""Random tokens that come again: the input of labels that ask what a head does when it has seen a token before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.labels.inputs.context import InputContext

if TYPE_CHECKING:
    from torch import Tensor

    from headlab.labels.scene import Scene
    from headlab.models.texts.batch import Batch

SHORTEST = 4  # tokens in a period that can show anything


@dataclass(frozen=True)
class RepeatedTokens:
    """`texts` sequences of `period` different random tokens, said `copies` times, framed as the tokenizer frames a
    text. A model with fewer positions or fewer tokens gets a shorter period. Extra: `repeated` (batch, token), the
    place within the random part, -1 outside; `period`."""

    period: int = 50
    copies: int = 2
    texts: int = 10

    def batches(self, context: InputContext) -> list[Batch]:
        """One batch of all sequences; nothing for a model that is too short, or that has no single stack."""
        import torch

        from headlab.models.texts.batch import Batch, Tokens

        before, after = _frame(context.checkpoint)
        words = ordinary_tokens(context)
        room = (longest(context) - len(before) - len(after)) // self.copies
        period = min(self.period, room, len(words))
        if period < SHORTEST or getattr(context.model.config, "is_encoder_decoder", False):
            return []
        draw = np.random.default_rng([context.seed, period])
        rows = [
            [*before, *np.tile(draw.choice(words, period, replace=False), self.copies), *after]
            for _ in range(self.texts)
        ]
        ids = torch.tensor(np.array(rows))
        place = torch.full(ids.shape, -1)
        place[:, len(before) : len(before) + self.copies * period] = torch.arange(self.copies * period)
        valid = torch.ones_like(ids, dtype=torch.bool)
        separator = torch.zeros_like(valid)
        tokens = Tokens(ids, valid, place < 0, separator)
        inputs = {"input_ids": ids, "attention_mask": valid.long()}
        extra = {"repeated": place, "period": period}
        return [Batch(inputs, tokens, examples=tuple(range(self.texts)), extra=extra)]


def earlier(scene: Scene, step: int) -> Tensor:
    """For each query in a later copy the key `step` after the occurrence of its token one period ago, else -1."""
    import torch

    place, period = scene.extra["repeated"], scene.extra["period"]
    query = torch.arange(place.shape[1], device=place.device)
    return (query - period + step).expand(place.shape).masked_fill(place < period, -1)


def longest(context: InputContext) -> int:
    """Tokens that the model takes at most."""
    limit = getattr(context.checkpoint, "max_length", None)
    if limit is None:
        limit = getattr(context.model.config, "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else 1 << 20


def ordinary_tokens(context: InputContext) -> np.ndarray:
    """Token ids that are no special tokens."""
    config: Any = context.model.config
    size = config.get_text_config().vocab_size if hasattr(config, "get_text_config") else config.vocab_size
    special = {v for name, v in vars(config).items() if name.endswith("_token_id") and isinstance(v, int)}
    tokenizer = getattr(context.checkpoint, "tokenizer", None)
    if tokenizer is not None:
        size = min(size, len(tokenizer))
        special |= set(tokenizer.all_special_ids)
    return np.setdiff1d(np.arange(size), list(special))


def _frame(checkpoint: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if getattr(checkpoint, "tokenizer", None) is None:
        return (), ()
    from headlab.models.texts.special_tokens import added_tokens

    added = added_tokens(checkpoint.tokenizer)
    return added.before, added.after
