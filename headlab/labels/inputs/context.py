"""Texts that a label brings along because ordinary ones do not show what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headlab.models.texts.batch import Batch


@dataclass(frozen=True)
class InputContext:
    """The model that an input is made for: with its checkpoint (tokenizer, limits) where there is one."""

    model: Any
    checkpoint: Any = None
    causal: bool = False  # no self-attention of the model sees later tokens
    seed: int = 0


class Input(Protocol):
    """Makes the batches of one kind of input; labels with an equal input share one pass over them."""

    def batches(self, context: InputContext) -> list[Batch]:
        """Batches for this model; an empty list where the model cannot read such texts."""
        ...
