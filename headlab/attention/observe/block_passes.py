"""One pass over a batch that shows each layer's attention, block by block, to a reader of the caller's."""

from __future__ import annotations

from collections.abc import Callable

from headlab.attention.reach.blocks import Block, Reader
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.sites import Site
from headlab.attention.subject import Subject
from headlab.base.masks import LayerKey
from headlab.models.texts.batch import Batch

BlockReader = Callable[[Site, AttentionCall, Block], None]


def show_blocks(subject: Subject, batch: Batch, read: BlockReader) -> None:
    """Run the batch once; `read(site, call, block)` sees every block of every layer and keeps what it wants of it.

    Raises UnsupportedModelError for layers declared without weights, ProofError where a layer was not reached.
    """
    subject.need_sight()
    reached: set[LayerKey] = set()

    def reader_of(site: Site, call: AttentionCall) -> Reader:
        reached.add(site.key)
        return lambda block: read(site, call, block)

    with subject.watched(reader_of):
        subject.forward(batch)
    subject.need_seen(reached)
