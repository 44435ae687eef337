"""Attention in blocks of queries: the layer's output, and every block of weights shown once and then overwritten."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headlab.attention.reach.call import AttentionCall

# A block of scores should stay in a core's cache between the handful of passes that are made over it, and hold enough
# rows that the cost of calling each operation does not show.
BLOCK_BYTES = 2 << 20
MIN_ROWS = 16
# Masked scores: low enough to vanish in any softmax, high enough that subtracting a maximum cannot overflow.
MASKED = -1e30


@dataclass(frozen=True)
class Block:
    """Weights of the queries start..stop towards keys 0..n of one layer; overwritten by the next block.

    weights (batch, head, query, key) are not divided by their sum: a query's attention is weights / total.
    `total` (batch, head, query) includes a learned sink logit, `key_total` does not; they are the same tensor where
    the layer has none. `peak` is each row's largest weight. `log_moment` is sum w ln w, so that the entropy of the
    row divided by `key_total` is ln(key_total) - log_moment / key_total: no logarithm over the block.
    """

    start: int
    stop: int
    weights: Tensor
    total: Tensor
    key_total: Tensor
    peak: Tensor
    log_moment: Tensor

    @property
    def rows(self) -> slice:
        """Where the block's queries are among all queries."""
        return slice(self.start, self.stop)

    def attention(self, heads: slice | list[int] = slice(None)) -> Tensor:
        """The attention of these queries, (batch, head, query, key); rows sum to 1 (below 1 with a sink logit)."""
        return self.weights[:, heads] / self.total[:, heads].unsqueeze(-1)


Reader = Callable[[Block], None]


def attend(call: AttentionCall, read: Reader | None = None, *, own_eager: bool = False) -> Tensor:
    """The layer's attention output (batch, query, head, value_dim), showing each block of weights to `read`.

    With `own_eager` the model's own eager function runs on each block, for models whose arithmetic differs.
    """
    if call.weights is not None:
        if read is not None:
            read(_block_of_attention(call.weights.float(), 0, call.weights.shape[2]))
        return call.weights
    if own_eager:
        return _attend_with_own_eager(call, read)
    batch, heads, queries, _ = call.query.shape
    kv_heads, keys = call.key.shape[1:3]
    query, key, value = (x.float() for x in (call.query, call.key, call.value))
    output = torch.empty(batch, queries, heads, value.shape[-1], dtype=call.query.dtype, device=query.device)
    for start, stop in _spans(batch * heads, queries, keys, call.causal):
        seen = stop if call.causal else keys  # later keys are invisible to the whole block
        rows = query[:, :, start:stop].reshape(batch, kv_heads, -1, query.shape[-1])  # heads of a group are stacked
        scores = torch.matmul(rows * call.scaling, key[:, :, :seen].transpose(-1, -2))
        scores = _edit_scores(call, scores.view(batch, heads, stop - start, seen), start, stop)
        block = _normalise(scores, call.sink_logits, start, stop)
        grouped = block.weights.view(batch, kv_heads, -1, seen)
        mixed = torch.matmul(grouped, value[:, :, :seen]).view(batch, heads, stop - start, -1)
        output[:, start:stop] = (mixed / block.total.unsqueeze(-1)).transpose(1, 2)
        if read is not None:
            read(block)
    return output


def _spans(rows: int, queries: int, keys: int, causal: bool) -> Iterator[tuple[int, int]]:
    """Spans of queries whose block of scores is about BLOCK_BYTES; causal blocks start small and so take more rows."""
    start = 0
    while start < queries:
        size = max(MIN_ROWS, BLOCK_BYTES // (4 * rows * keys))
        if causal:  # size * (start + size) elements of each row
            area = BLOCK_BYTES / (4 * rows)
            size = max(MIN_ROWS, int(((start * start + 4 * area) ** 0.5 - start) / 2))
        stop = min(queries, start + size)
        yield start, stop
        start = stop


def _edit_scores(call: AttentionCall, scores: Tensor, start: int, stop: int) -> Tensor:
    """Softcap, position bias and mask, in the order in which eager functions apply them; scores are changed."""
    seen = scores.shape[-1]
    if call.softcap is not None:
        scores.div_(call.softcap).tanh_().mul_(call.softcap)
    if call.position_bias is not None:
        scores.add_(_rows(call.position_bias, start, stop)[..., :seen])
    if call.causal:
        # Only the last columns of the block can lie in a query's future.
        scores[..., start:].add_(_future(stop - start, scores.device))
    elif call.mask is not None:
        mask = _rows(call.mask, start, stop)[..., :seen]
        if mask.dtype == torch.bool:
            scores.masked_fill_(~mask, MASKED)
        else:
            scores.add_(mask).clamp_min_(MASKED)
    return scores


@functools.lru_cache(maxsize=64)  # every layer has the same spans
def _future(rows: int, device: torch.device) -> Tensor:
    """What takes a block's own later keys away from its queries, (query, key)."""
    return torch.full((rows, rows), MASKED, device=device).triu_(1)


def _rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Query rows start..stop of a tensor (..., query, key) whose query dimension may be broadcast."""
    return tensor if tensor.shape[-2] == 1 else tensor[..., start:stop, :]


def _normalise(scores: Tensor, sink_logits: Tensor | None, start: int, stop: int) -> Block:
    """Softmax without the division; scores are used up."""
    highest = scores.amax(-1, keepdim=True)
    scores.sub_(highest)
    weights = scores.exp()
    key_total = weights.sum(-1)
    log_moment = torch.einsum("bhqk,bhqk->bhq", weights, scores)  # ln w is the score itself
    total = key_total
    if sink_logits is not None:
        total = key_total + (sink_logits.float().view(1, -1, 1) - highest.squeeze(-1)).exp()
    return Block(start, stop, weights, total, key_total, torch.ones_like(key_total), log_moment)


def _attend_with_own_eager(call: AttentionCall, read: Reader | None) -> Tensor:
    function = own_eager_function(call.module)
    if function is None:
        raise RuntimeError(f"{type(call.module).__name__} has no eager attention function of its own.")
    batch, heads, queries, _ = call.query.shape
    mask = additive(call.mask, call.query.dtype)
    if call.causal:
        visible = torch.ones(queries, call.key.shape[2], dtype=torch.bool, device=call.query.device).tril_()
        mask = additive(visible[None, None], call.query.dtype)
    arguments = dict(call.arguments or {})
    outputs = []
    for start, stop in _spans(batch * heads, queries, call.key.shape[2], causal=False):
        part = {name: _query_rows(value, queries, start, stop) for name, value in arguments.items()}
        output, attention = function(
            call.module,
            call.query[:, :, start:stop],
            call.key,
            call.value,
            None if mask is None else _rows(mask, start, stop),
            **part,
        )
        outputs.append(output)
        if read is not None:
            read(_block_of_attention(attention.float(), start, stop))
    return torch.cat(outputs, 1)


def _query_rows(value: object, queries: int, start: int, stop: int) -> object:
    """Those of the function's arguments that have a row for each query, cut to the block's queries."""
    if isinstance(value, Tensor) and value.dim() >= 3 and value.shape[-2] == queries:
        return value[..., start:stop, :]
    return value


def _block_of_attention(attention: Tensor, start: int, stop: int) -> Block:
    key_total = attention.sum(-1)
    log_moment = -torch.special.entr(attention).sum(-1)
    return Block(start, stop, attention, torch.ones_like(key_total), key_total, attention.amax(-1), log_moment)


def own_eager_function(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The eager attention function of the file that defines this module, where it has one."""
    for cls in type(module).__mro__:
        function = getattr(sys.modules.get(cls.__module__), "eager_attention_forward", None)
        if function is not None:
            return function
    return None


def additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A boolean mask as the additive one that eager functions expect."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
