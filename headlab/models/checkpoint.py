"""An opened checkpoint: the model, its tokenizer, and what a result needs to say about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn

from headlab.base.display import Displayed
from headlab.base.errors import CheckpointError

UNLIMITED = 1_000_000  # tokenizers without a limit state one beyond this


@dataclass
class Checkpoint(Displayed):
    """A model in eval mode; `tokenizer` is None where the checkpoint has none.

    `revision` is the hub's commit, or `sha256:` and 16 digits of the hash of the weights' bytes for local files (for
    converted ones, of the file they were converted from). `max_length` is the model's limit in tokens, None without
    one. `adds` says which of bos, cls, sep, eos the tokenizer puts around a text, as measured on a sample.
    """

    name: str
    model: nn.Module
    tokenizer: Any = None
    revision: str = "unknown"
    purpose: str = "auto"
    max_length: int | None = None
    adds: dict[str, bool] = field(default_factory=dict)
    is_encoder_decoder: bool = False

    def __repr__(self) -> str:
        limit = "any number of" if self.max_length is None else self.max_length
        return f"Checkpoint({self.name!r}: {type(self.model).__name__}, {limit} tokens)"

    def describe(self) -> dict[str, Any]:
        """The part of a signature that says which model, in which form, under which versions."""
        return {
            "name": self.name,
            "revision": self.revision,
            "class": type(self.model).__name__,
            "dtype": str(next(self.model.parameters()).dtype).removeprefix("torch."),
            "adds": dict(self.adds),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        }


def require_known_ids(checkpoint: Checkpoint, highest: int) -> None:
    """Raise CheckpointError for a token id that the model has no embedding of."""
    model: Any = checkpoint.model
    try:
        embeddings = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # no such table, or several
        return
    size = getattr(embeddings, "num_embeddings", None)
    if size is not None and highest >= size:
        raise CheckpointError(
            f"The tokenizer of {checkpoint.name!r} gives the token id {highest}, and the model has {size} embeddings.",
            "Put the tokenizer that belongs to the model into its folder.",
        )


def token_limit(model: nn.Module, tokenizer: Any = None) -> int | None:
    """Longest input in tokens that both the position embeddings and the tokenizer allow; None without a limit."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(text, "max_position_embeddings", None)
    if isinstance(positions, int):
        positions -= reserved_positions(model)
    limits = (positions, getattr(tokenizer, "model_max_length", None))
    known = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit < UNLIMITED]
    return min(known, default=None)


def reserved_positions(model: nn.Module) -> int:
    """Rows of the position table that no token gets: RoBERTa's kind starts to count after its padding id."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.padding_idx + 1
    return 0
