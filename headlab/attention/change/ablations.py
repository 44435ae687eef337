"""What takes the place of a removed head: nothing, its mean, another text's slice, or uniform attention."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headlab.attention.change.donors import Donors, Rows, rows_of
from headlab.attention.reach.call import AttentionCall, by_query_head, visible_keys
from headlab.attention.reach.projections import gated, per_head
from headlab.attention.reach.sites import Site
from headlab.attention.reach.state import hooked
from headlab.attention.reach.views import site_handler
from headlab.attention.subject import Subject
from headlab.base.errors import ProofError, UsageError, unknown_name
from headlab.base.masks import ABLATIONS, HeadMask, LayerKey

Keep = Mapping[LayerKey, Tensor]  # per edited layer (head,), bool: False = removed
Replacements = Mapping[LayerKey, Tensor] | Donors | None  # mean outputs, other texts' slices, or nothing
Fill = Callable[[Site, Tensor], Tensor]  # what stands in for the slices (..., head, value_dim) of a layer


@contextlib.contextmanager
def masked(subject: Subject, mask: HeadMask, ablation: str = "zero", means: Replacements = None) -> Iterator[None]:
    """Inside, the model runs without the removed heads of the mask; the output projection's bias stays.

    `means` are the mean outputs (mean ablation) or the Donors (resample). Raises UsageError for another model's mask,
    UnsupportedModelError for an ablation that the model's layers do not allow, ProofError where a forward pass went
    by without a removed head's layer being reached, so that "no effect" never means "not applied".
    """
    _check(subject, mask, ablation, means)
    keep = {key: torch.tensor(mask[key]) for key in mask if not mask[key].all()}
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    with hooked([subject.module.register_forward_hook(count)]), removed(subject, keep, ablation, means) as reached:
        yield
    missed = set(keep) - reached
    if passes and missed:
        kind, layer = sorted(missed)[0]
        cause = f"The model ran, but its {kind} layer {layer} was not reached by the mask."
        raise ProofError(cause, "Nothing measured under this mask counts; is the model compiled or wrapped?")


def _check(subject: Subject, mask: HeadMask, ablation: str, means: Replacements) -> None:
    subject.need_gates("removed")
    if not isinstance(mask, HeadMask):
        cause = f"A mask is a HeadMask, not {type(mask).__name__}."
        raise UsageError(cause, "Make it with HeadMask.removing(heads, like=heads).")
    if mask.heads_per_layer != subject.heads_per_layer:
        raise UsageError("The mask belongs to another model.", "Make it with HeadMask.removing(heads, like=heads).")
    if ablation not in ABLATIONS:
        raise unknown_name("ablation", ablation, ABLATIONS)
    if ablation == "mean" and (means is None or isinstance(means, Donors)):
        raise UsageError("Mean ablation needs each head's mean output.", "Pass means=heads.mean_outputs(batches).")
    if ablation == "resample" and not isinstance(means, Donors):
        raise UsageError("Resample ablation needs other texts' outputs.", "Pass means=heads.donors(batches).")
    subject.need_ablation(ablation)


@contextlib.contextmanager
def removed(subject: Subject, keep: Keep, ablation: str, means: Any = None) -> Iterator[set[LayerKey]]:
    """Inside, the model runs without the heads that `keep` leaves out; yields the set of layers reached so far.

    Layers without one projection are gated where they are computed, and count as reached.
    """
    if ablation == "uniform":
        with _uniform(subject, keep) as reached:
            yield reached
        return
    inside = {site.key: keep[site.key] for site in subject.sites if site.projection is None and site.key in keep}
    reached = set(inside)

    def edit(site: Site, entering: Tensor) -> Tensor | None:
        if site.key not in keep:
            return None
        reached.add(site.key)
        kept = keep[site.key].to(entering.device).unsqueeze(-1)
        heads = per_head(entering, site)
        return torch.where(kept, heads, fill(site, heads)).reshape(entering.shape)

    with (
        gated(subject.module, subject.sites, subject.view, inside),
        _filling(subject.module, ablation, means) as fill,
        subject.edited(edit),
    ):
        yield reached


@contextlib.contextmanager
def _filling(model: nn.Module, ablation: str, means: Any) -> Iterator[Fill]:
    """The function that says what stands in for a layer's slices."""
    if ablation != "resample":
        yield lambda site, heads: means[site.key].to(heads) if ablation == "mean" else heads.new_zeros(())
        return
    donors: Donors = means
    with _rows_noted(model) as running:
        yield lambda site, heads: donors.slices(site, heads, running())


@contextlib.contextmanager
def _rows_noted(model: nn.Module) -> Iterator[Callable[[], Rows | None]]:
    """Inside, the token ids of the pass that is running are known; they are forgotten when the pass ends."""
    now: list[Rows] = []

    def note(module: nn.Module, arguments: tuple, named: dict) -> None:
        now[:] = [rows] if (rows := rows_of(module, arguments, named)) is not None else []

    def forget(*_: Any) -> None:
        now.clear()

    base = getattr(model, "base_model", None)
    entrances = [model] if base is model or not isinstance(base, nn.Module) else [model, base]
    hooks = [m.register_forward_pre_hook(note, with_kwargs=True, prepend=True) for m in entrances]
    with hooked([*hooks, model.register_forward_hook(forget)]):
        yield lambda: now[0] if now else None


@contextlib.contextmanager
def _uniform(subject: Subject, keep: Keep) -> Iterator[set[LayerKey]]:
    """Inside, removed heads look at every visible key alike (Kovaleva et al. 2019): values are mixed in equal parts.

    A learned sink takes nothing then, and a gate on the head's output works on the mix.
    """
    reached: set[LayerKey] = set()
    met: list[Site] = []
    plain = site_handler(subject.sites, lambda site, call: met.append(site), subject.view)

    def handler(call: AttentionCall) -> Tensor | None:
        met.clear()
        output = plain(call)
        if output is None or not met or met[0].key not in keep:
            return output
        reached.add(met[0].key)
        kept = keep[met[0].key].to(output.device)
        if call.weights is not None:
            return torch.where(kept[:, None, None], output, uniform_weights(call).to(output))
        return torch.where(kept[:, None], output, uniform_output(call).to(output))

    with subject.view.engage(subject.module, handler):
        yield reached


def uniform_weights(call: AttentionCall) -> Tensor:
    """Equal weights on the keys that each query sees, (batch or 1, head or 1, query, key) in float32."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    device = call.query.device if call.weights is None else call.weights.device
    if call.mask is not None:
        visible = visible_keys(call.mask)[..., :keys]
    else:
        visible = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
        visible = visible.tril() if call.causal else visible
    weights = visible.float()
    return weights / weights.sum(-1, keepdim=True).clamp_min(1)


def uniform_output(call: AttentionCall) -> Tensor:
    """The plain mean of the visible values, (batch, query, head, value_dim) in float32."""
    values = by_query_head(call.value, call.n_heads).float()
    mixed = torch.matmul(uniform_weights(call), values).transpose(1, 2)
    return mixed.expand(call.query.shape[0], call.query.shape[2], -1, -1)
