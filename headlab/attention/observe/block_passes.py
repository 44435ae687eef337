"""One pass over a batch that shows each layer's attention, block by block, to a reader of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from headlab.attention.reach.blocks import Block
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.sites import Site
from headlab.attention.reach.views import site_handler
from headlab.base.errors import ProofError
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch

if TYPE_CHECKING:
    from headlab.attention.heads import Heads

BlockReader = Callable[[Site, AttentionCall, Block], None]


def show_blocks(heads: Heads, batch: Batch, read: BlockReader) -> None:
    """Run the batch once; `read(site, call, block)` sees every block of every layer and keeps what it wants of it.

    Raises UnsupportedModelError for layers declared without weights, ProofError where a layer was not reached.
    """
    heads.need_sight(heads.sites)
    reached: set[tuple[str, int]] = set()

    def reader_of(site: Site, call: AttentionCall) -> Callable[[Block], None]:
        reached.add(site.key)
        return lambda block: read(site, call, block)

    handler = site_handler(heads.sites, reader_of, heads.view)
    with torch.no_grad(), evaluating(heads.model), heads.view.engage(heads.model, handler):
        heads.forward(batch)
    missed = [site for site in heads.sites if site.key not in reached]
    if missed:
        raise ProofError(f"A pass went by without {missed[0].kind} layer {missed[0].layer} being seen.",
                         "Nothing measured in it counts; does something change the model while it runs?")  # fmt: skip
