"""Log-probabilities that a causal language model gives to the tokens of its input."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from headlab.base.errors import UsageError
from headlab.models.state import device_of, evaluating

if TYPE_CHECKING:
    from headlab.models import Checkpoint
    from headlab.models.texts.batch import Batch

_CHUNK = 64  # positions whose probabilities are worked out at a time
_LOGITS = 50_000_000  # numbers in the logits of one batch, at most: 200 MB in float32


class RowSums(NamedTuple):
    """Sums over the counted tokens of each row, (rows,) each; `log_probability` is differentiable."""

    log_probability: Tensor  # nats
    tokens: Tensor
    hits: Tensor  # tokens that are the model's first choice


def row_sums(model: nn.Module, batch: Batch) -> RowSums:
    """Each counted token's log-probability given the tokens before it, summed by row.

    The model is called as it is, so that its own bias, scaling and softcapping of logits apply. Padding is never
    looked at. A row whose logits are NaN gives NaN.
    """
    logits = forward_logits(model, batch.inputs)
    ids, counted = batch.inputs["input_ids"], batch.extra["counted"]
    row, place = counted.nonzero(as_tuple=True)  # place >= 1: a row's first token is never counted
    return _sums(logits, row, place - 1, ids[row, place])


def target_sums(model: nn.Module, batch: Batch) -> RowSums:
    """As `row_sums`, for the counted labels of an encoder-decoder's batch, each predicted at its own place."""
    logits = forward_logits(model, batch.inputs)
    labels, counted = batch.extra["labels"], batch.extra["counted"]
    row, place = counted.nonzero(as_tuple=True)
    sums = _sums(logits, row, place, labels[row, place])
    # A batch in which nothing counts is differentiable all the same.
    return sums._replace(log_probability=sums.log_probability + 0 * logits[:, 0, 0].to(sums.log_probability.dtype))


def _sums(logits: Tensor, row: Tensor, position: Tensor, ids: Tensor) -> RowSums:
    """Sums by row of what the logits (rows, tokens, vocabulary) at the places say of the ids; all (positions,)."""
    wide = torch.float32 if logits.device.type == "mps" else torch.float64
    totals = [torch.zeros(len(logits), dtype=wide, device=logits.device) for _ in range(3)]
    for start in range(0, len(row), _CHUNK):
        r, predicted = row[start : start + _CHUNK], ids[start : start + _CHUNK]
        scores = logits[r, position[start : start + _CHUNK]].float()  # (positions, vocabulary)
        nll = functional.cross_entropy(scores, predicted, reduction="none")
        hit = torch.where(nll.detach().isnan(), torch.nan, first_choice(scores.detach(), predicted).to(scores.dtype))
        parts = (-nll, torch.ones_like(hit), hit)
        totals = [total.index_add(0, r, part.to(wide)) for total, part in zip(totals, parts, strict=True)]
    return RowSums(*totals)


def first_choice(scores: Tensor, ids: Tensor) -> Tensor:
    """Whether each id (positions,) is the argmax of its scores (positions, vocabulary)."""
    # A maximum costs half of an argmax, which is then worked out only where the id ties with it.
    is_largest = scores.gather(1, ids[:, None]).squeeze(1) == scores.amax(dim=1)
    is_largest[is_largest.clone()] = scores[is_largest].argmax(dim=1) == ids[is_largest]
    return is_largest


def forward_logits(model: nn.Module, inputs: Any) -> Tensor:
    """Logits (row, token, vocabulary) of a language model; no key-value cache is built where the model allows it."""
    arguments = dict(inputs)
    if "use_cache" in inspect.signature(model.forward).parameters:
        arguments["use_cache"] = False
    output = model(**arguments)
    logits = getattr(output, "logits", output[0] if isinstance(output, tuple) else output)
    if not isinstance(logits, Tensor) or logits.dim() != 3:
        raise UsageError(
            "The model gives no logits for each token, so it is no language model.",
            "Name a causal language model (GPT-2, Llama, demo:smollm2).",
        )
    return logits


def token_budget(checkpoint: Checkpoint) -> int:
    """Tokens in a batch such that its logits stay small, whatever the vocabulary."""
    config: Any = getattr(checkpoint.model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = getattr(text, "vocab_size", None) or len(checkpoint.tokenizer)
    return max(256, min(4096, _LOGITS // int(vocabulary)))


def require_causal(checkpoint: Checkpoint, row: np.ndarray) -> None:
    """Raise UsageError unless earlier logits stay the same when the last token changes; `row` is (tokens,).

    Tried rather than read from the model's class: a BERT opened as a causal model still looks ahead.
    """
    remedy = "Use a causal language model (GPT-2, Llama, demo:smollm2), or the tasks probe or classification."
    if checkpoint.is_encoder_decoder:
        raise UsageError(f"{checkpoint.name!r} is an encoder-decoder, and this task needs one causal stack.", remedy)
    model, ids = checkpoint.model, torch.from_numpy(row).to(device_of(checkpoint.model))
    other = ids.clone()
    other[-1] = ids[0] if ids[-1] != ids[0] else (ids[0] + 1) % 2
    with evaluating(model), torch.no_grad():
        # One sequence a call: stacked rows may be computed with another kernel for each.
        before = forward_logits(model, {"input_ids": ids[None]})[0, :-1].float()
        after = forward_logits(model, {"input_ids": other[None]})[0, :-1].float()
    if (before - after).abs().max() > 1e-4 * before.abs().max().clamp(min=1e-6):
        raise UsageError(f"{checkpoint.name!r} is no causal language model: its predictions look ahead.", remedy)
