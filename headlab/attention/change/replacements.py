"""What an ablation puts in the place of removed heads, measured on texts: nothing, their means, or donors."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from headlab.attention.change.ablations import Replacements
from headlab.attention.change.donors import find_donors
from headlab.attention.reach.projections import per_token
from headlab.attention.reach.sites import Site
from headlab.attention.subject import Subject
from headlab.base.masks import LayerKey
from headlab.models.state import evaluating
from headlab.models.texts.batch import Batch


def replacements(subject: Subject, ablation: str, batches: Iterable[Batch], *, seed: int = 0) -> Replacements:
    """What `masked` needs for an ablation: the means or the donors of these texts, or nothing."""
    if ablation == "mean":
        return mean_outputs(subject, batches)
    return find_donors(subject, batches, seed=seed) if ablation == "resample" else None


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
