"""Greedy translation with the Firefox student, one token of every sentence at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headlab.models.demo.firefox.student import FirefoxStudent

if TYPE_CHECKING:
    from headlab.models.checkpoint import Checkpoint

LENGTH_FACTOR = 2.5  # Marian's setting for this student: at most so many target tokens for each source token


@dataclass
class _Running:
    """The sentences that are still being translated: everything has one row each."""

    sentence: Tensor  # which one of the batch, (row,)
    limit: Tensor  # most tokens it may get, (row,)
    mask: Tensor  # (row, 1, 1, source)
    memory: list[tuple[Tensor, Tensor]]  # by decoder layer: keys, values (row, head, source, head width)
    cells: list[Tensor]  # by decoder layer, (row, d_model)
    last: Tensor  # last token, (row, 1)

    def keep(self, rows: Tensor) -> _Running:
        """Only these rows."""
        return _Running(
            self.sentence[rows],
            self.limit[rows],
            self.mask[rows],
            [(k[rows], v[rows]) for k, v in self.memory],
            [cell[rows] for cell in self.cells],
            self.last[rows],
        )


def greedy(
    model: FirefoxStudent, input_ids: Tensor, attention_mask: Tensor, *, length_factor: float = LENGTH_FACTOR
) -> list[list[int]]:
    """The likeliest next token of each source (batch, source) until its end token, which is left out.

    A sentence has at most `length_factor` times its source tokens, whatever else is in the batch.
    """
    return [tokens for tokens, _ in search(model, input_ids, attention_mask, length_factor=length_factor)]


@torch.no_grad()
def search(
    model: FirefoxStudent,
    input_ids: Tensor,
    attention_mask: Tensor,
    *,
    length_factor: float = LENGTH_FACTOR,
    most: int | None = None,
) -> list[tuple[list[int], bool]]:
    """As `greedy`, with at most `most` tokens; beside each translation, whether it came to its end token."""
    states, mask = model.encode(input_ids, attention_mask)
    rows = len(input_ids)
    limit = (attention_mask.sum(-1) * length_factor).long()
    running = _Running(
        torch.arange(rows, device=states.device),
        limit if most is None else limit.clamp_max(most),
        mask,
        model.memory(states),
        [states.new_zeros(rows, states.shape[-1]) for _ in model.decoder],
        torch.full((rows, 1), model.config.decoder_start_token_id, device=states.device),
    )
    found: list[list[int]] = [[] for _ in range(rows)]
    ended = [False] * rows
    step = 0
    while len(running.sentence):
        tokens = _next(model, running, step)
        step += 1
        going = (tokens != model.config.eos_token_id) & (step < running.limit)
        for sentence, token in zip(running.sentence.tolist(), tokens.tolist(), strict=True):
            if token == model.config.eos_token_id:
                ended[sentence] = True
            else:
                found[sentence].append(token)
        if not going.all():
            running = running.keep(going)
    return list(zip(found, ended, strict=True))


def _next(model: FirefoxStudent, running: _Running, step: int) -> Tensor:
    """The next token of each row; moves the rows' cells on."""
    x = model.embed(running.last, torch.full_like(running.last, step))
    for number, layer in enumerate(model.decoder):
        x, running.cells[number] = layer(x, running.cells[number], running.memory[number], running.mask)
    tokens = _likeliest(model.scores(x[:, 0]))
    running.last = tokens.unsqueeze(1)
    return tokens


def _likeliest(scores: Tensor) -> Tensor:
    """The place of each row's first maximum, (row,), of scores (row, vocabulary)."""
    if scores.device.type == "cpu" and scores.dtype == torch.float32:
        return torch.from_numpy(scores.numpy().argmax(-1))  # an eighth of the time that torch takes on a CPU
    return scores.argmax(-1)


def translate(
    checkpoint: Checkpoint, texts: Sequence[str], *, batch_size: int = 32, length_factor: float = LENGTH_FACTOR
) -> list[str]:
    """Translations of texts, in their order, by greedy decoding; an empty text has an empty translation."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    assert isinstance(model, FirefoxStudent)
    sources = tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
    # Sentences of like length together: little is spent on padding.
    order = [i for i in sorted(range(len(texts)), key=lambda i: len(sources[i])) if texts[i].strip()]
    device = next(model.parameters()).device
    result = [""] * len(texts)
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        width = max(len(sources[place]) for place in places)
        padded = [sources[place] + [tokenizer.pad_token_id] * (width - len(sources[place])) for place in places]
        ids = torch.tensor(padded, device=device)
        lengths = torch.tensor([len(sources[place]) for place in places], device=device)
        mask = (torch.arange(width, device=device) < lengths[:, None]).long()
        for place, tokens in zip(places, greedy(model, ids, mask, length_factor=length_factor), strict=True):
            result[place] = tokenizer.decode(tokens, skip_special_tokens=False)
    return result
