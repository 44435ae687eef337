"""Slices of a few real texts, from which removed heads take theirs: resample ablation."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headlab.attention.reach.projections import per_token
from headlab.attention.reach.sites import Site
from headlab.attention.subject import Subject
from headlab.base.errors import DataError, UnsupportedModelError
from headlab.base.masks import LayerKey
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch

N_DONORS = 16


@dataclass(frozen=True)
class Rows:
    """What a running pass reads: a digest of each row's real tokens, and which tokens are real, (row, token)."""

    digests: tuple[bytes, ...]
    source: Tensor
    target: Tensor | None

    def queries(self, kind: str) -> Tensor:
        """Real tokens on the query side of a kind of attention, as Batch.queries chooses it."""
        return self.source if self.target is None or kind == "encoder" else self.target


def rows_of(model: nn.Module, arguments: Sequence[Any], named: Mapping[str, Any]) -> Rows | None:
    """The rows of a forward call; None where it gets no token ids, or not those of a whole text."""
    parameters = inspect.signature(model.forward).parameters
    inputs = dict(zip(parameters, arguments, strict=False)) | dict(named)
    ids = inputs.get("input_ids")
    if not isinstance(ids, Tensor) or ids.dim() != 2 or any(map(_tokens_before, inputs.values())):
        return None
    source = _real(inputs.get("attention_mask"), ids)
    decoded = inputs.get("decoder_input_ids")
    decoded = inputs.get("labels") if decoded is None and "decoder_input_ids" in parameters else decoded
    target = _real(inputs.get("decoder_attention_mask"), decoded) if isinstance(decoded, Tensor) else None
    digests = tuple(_digest(row[real]) for row, real in zip(ids.cpu(), source.cpu(), strict=True))
    return Rows(digests, source, target)


def _tokens_before(value: Any) -> int:
    """How many tokens of the text have gone before in earlier passes, if the value is a cache that knows them."""
    length = getattr(value, "get_seq_length", None)  # the argument's name differs between models and versions
    return int(length()) if callable(length) else 0


def _real(mask: Any, ids: Tensor) -> Tensor:
    if isinstance(mask, Tensor) and mask.shape == ids.shape:
        return mask.bool()
    return torch.ones_like(ids, dtype=torch.bool)


def _digest(ids: Tensor) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(ids.numpy(), dtype=np.int64).tobytes(), digest_size=8).digest()


@dataclass
class _Donor:
    """One text: where it comes from, and its slices (real token, head, value_dim) by (kind, layer)."""

    digest: bytes
    example: int
    slices: dict[LayerKey, Tensor]


class Donors:
    """A few real texts whose slices stand in for those of removed heads.

    A row gets its donor by a hash of the seed and of its own tokens, never itself nor a row of its own example, so
    that batches and padding do not matter; the same donor serves all heads and layers. The row's t-th real token
    takes the slice of the donor's t-th; where the donor is shorter it starts again from its first token.
    """

    def __init__(self, donors: Sequence[_Donor], owners: Mapping[bytes, int], seed: int) -> None:
        self.donors, self.owners, self.seed = list(donors), dict(owners), seed

    def __len__(self) -> int:
        return len(self.donors)

    def donor_of(self, digest: bytes) -> int:
        """The donor of a row, by the digest of its real tokens."""
        own = self.owners.get(digest)
        allowed = [i for i, donor in enumerate(self.donors) if donor.digest != digest and donor.example != own]
        return allowed[_rank(digest, self.seed, b"donor") % len(allowed)]

    def slices(self, site: Site, heads: Tensor, rows: Rows | None) -> Tensor:
        """What stands in for the slices `heads` (..., head, value_dim) of the pass that reads `rows`."""
        if rows is None or heads.numel() != rows.queries(site.kind).numel() * site.n_heads * site.value_dim:
            raise UnsupportedModelError(
                "Resample ablation finds another text for each text by its token ids, and this pass does not show "
                "those of a whole text (as in generation).",
                "Use zero, mean or uniform ablation here.",
            )
        real = rows.queries(site.kind)
        place = (real.long().cumsum(1) - 1).clamp_min(0)  # (row, token)
        filled = []
        for digest, position in zip(rows.digests, place, strict=True):
            donated = self.donors[self.donor_of(digest)].slices[site.key].to(heads)
            filled.append(donated[position.to(donated.device) % len(donated)])
        return torch.stack(filled).reshape(heads.shape)


def _rank(digest: bytes, seed: int, purpose: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(digest + purpose + str(seed).encode(), digest_size=8).digest(), "big")


def find_donors(subject: Subject, batches: Iterable[Batch], n: int = N_DONORS, seed: int = 0) -> Donors:
    """`n` texts by the seed, whatever the order and the batches they come in, with their slices in every layer.

    Raises DataError for fewer than 2 different examples, UnsupportedModelError for inputs without token ids and for
    layers without an output projection.
    """
    subject.need_gates("replaced by those of other texts")
    subject.need_ablation("resample")
    chosen: dict[bytes, _Donor] = {}
    owners: dict[bytes, int] = {}
    for batch in batches:
        batch = batch.to(subject.device)
        rows = rows_of(subject.module, (), batch.inputs)
        if rows is None:
            cause = f"{type(subject.module).__name__} gets no input_ids, by which resample ablation tells texts apart."
            raise UnsupportedModelError(cause, "Use zero, mean or uniform ablation.")
        examples = batch.examples or tuple(range(len(owners), len(owners) + len(batch)))
        owners |= {digest: owner for digest, owner in zip(rows.digests, examples, strict=True) if digest not in owners}
        best = sorted({*chosen, *rows.digests}, key=lambda digest: _rank(digest, seed, b"choice"))[:n]
        new = [row for row, digest in enumerate(rows.digests) if digest in best and digest not in chosen]
        if new:
            slices = _slices_of(subject, batch, new)
            chosen |= {
                rows.digests[row]: _Donor(rows.digests[row], owners[rows.digests[row]], slices[row]) for row in new
            }
        chosen = {digest: donor for digest, donor in chosen.items() if digest in best}
    if len({donor.example for donor in chosen.values()}) < 2:
        cause = f"Resample ablation takes a head's output from another example, and there are {len(owners)} different "
        raise DataError(f"{cause}texts.", "Give at least 2 examples with different texts.")
    ordered = sorted(chosen.values(), key=lambda donor: _rank(donor.digest, seed, b"choice"))
    return Donors(ordered, owners, seed)


def _slices_of(subject: Subject, batch: Batch, rows: Sequence[int]) -> dict[int, dict[LayerKey, Tensor]]:
    """Slices (real token, head, value_dim) of some rows of a batch, by row and by (kind, layer)."""
    taken: dict[int, dict[LayerKey, Tensor]] = {row: {} for row in rows}

    def keep(site: Site, entering: Tensor) -> None:
        tokens = batch.queries(site.kind)
        slices = per_token(entering, site, tokens)
        for row in rows:
            taken[row][site.key] = slices[row][tokens.valid[row]].clone()

    with torch.no_grad(), evaluating(subject.module), subject.edited(keep):
        subject.forward(batch)
    return taken
