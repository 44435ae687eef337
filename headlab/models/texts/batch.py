"""What a model is shown: forward arguments, and for every token whether it is real, special, a separator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Tokens:
    """One side of a batch; every tensor is (batch, tokens)."""

    ids: Tensor  # int64
    valid: Tensor  # bool: False on padding
    special: Tensor  # bool: added by the tokenizer ([CLS], [SEP], BOS, EOS); False on padding
    separator: Tensor  # bool: [SEP] or end-of-sentence tokens, those that close a segment

    def __repr__(self) -> str:
        rows, width = self.ids.shape
        return f"Tokens({rows} rows, {width} wide, {int(self.valid.sum())} tokens)"

    def map(self, change: Callable[[Tensor], Tensor]) -> Tokens:
        """The same tokens with each tensor changed."""
        return Tokens(*(change(tensor) for tensor in (self.ids, self.valid, self.special, self.separator)))


@dataclass(frozen=True)
class Batch:
    """A batch of examples: `inputs` are the keyword arguments of the model's forward.

    `source` describes the tokens of a single stack, or of the encoder of a sequence-to-sequence model, whose decoder
    tokens are then `target`. `examples` are ids that stay the same however the examples are batched.
    `extra` carries what a task needs beside the model's inputs (labels, masks of counted tokens).
    """

    inputs: Mapping[str, Any]
    source: Tokens
    target: Tokens | None = None
    examples: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.source.ids.shape[0]

    def __repr__(self) -> str:
        target = "" if self.target is None else f", target {self.target}"
        return f"Batch({len(self.example_ids)} examples, source {self.source}{target})"

    def queries(self, kind: str) -> Tokens:
        """The tokens that a kind of attention (encoder, decoder, cross) looks from."""
        return self.source if self.target is None or kind == "encoder" else self.target

    def keys(self, kind: str) -> Tokens:
        """The tokens that a kind of attention looks at."""
        return self.source if self.target is None or kind in ("encoder", "cross") else self.target

    @property
    def sides(self) -> tuple[Tokens, ...]:
        """Source, and target where there is one."""
        return (self.source,) if self.target is None else (self.source, self.target)

    @property
    def example_ids(self) -> list[int]:
        """The ids of the examples of the batch, each once, as they first appear."""
        return list(dict.fromkeys(self.examples))

    @property
    def owners(self) -> Tensor:
        """For each row the place of its example among those of the batch, (rows,); rows without examples own theirs."""
        place = {example: i for i, example in enumerate(self.example_ids)}
        return torch.tensor([place[example] for example in self.examples] if place else range(len(self)))

    def sum_by_example(self, rows: Tensor) -> Tensor:
        """(rows, ...) added up over the rows of each example: (examples, ...), as they first appear in `examples`."""
        owners = self.owners.to(rows.device)
        n = len(self.example_ids) or len(self)
        return rows.new_zeros((n, *rows.shape[1:])).index_add(0, owners, rows)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch with every tensor on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def clone(self) -> Batch:
        """The same batch in tensors of its own, which autograd takes even where these were made in inference mode."""
        return self._map(torch.clone)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        def over(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: change(value) if isinstance(value, Tensor) else value for name, value in values.items()}

        target = None if self.target is None else self.target.map(change)
        return Batch(over(self.inputs), self.source.map(change), target, self.examples, over(self.extra))


# What a model loses on a batch, (examples,), differentiable: loss(model, batch).
Loss = Callable[[nn.Module, Batch], Tensor]
