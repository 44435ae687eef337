"""What each head hands to its output projection on average: what mean ablation puts in a removed head's place."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from headlab.attention.reach.projections import per_token
from headlab.attention.reach.sites import Site
from headlab.attention.subject import Subject
from headlab.base.masks import LayerKey
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch


def mean_outputs(subject: Subject, batches: Iterable[Batch]) -> dict[LayerKey, Tensor]:
    """Each head's mean slice at the input of its output projection, over real tokens: (head, value_dim)."""
    subject.need_gates("replaced by their means")
    total: dict[LayerKey, Tensor] = {}
    count: dict[LayerKey, int] = {}
    for batch in batches:
        batch = batch.to(subject.device)

        def add(site: Site, entering: Tensor, batch: Batch = batch) -> None:
            tokens = batch.queries(site.kind)
            slices = per_token(entering, site, tokens)[tokens.valid].double()
            total[site.key] = total.get(site.key, 0) + slices.sum(0)
            count[site.key] = count.get(site.key, 0) + len(slices)

        with torch.no_grad(), evaluating(subject.module), subject.edited(add):
            subject.forward(batch)
    return {key: (value / count[key]).float() for key, value in total.items()}
