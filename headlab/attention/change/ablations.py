"""What takes the place of a removed head: nothing, its mean, another text's slice, or uniform attention."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headlab.attention.change.donors import Donors, Rows, rows_of
from headlab.attention.reach.call import AttentionCall
from headlab.attention.reach.projections import edits_at_projections, gated, per_head
from headlab.attention.reach.sites import Site
from headlab.attention.reach.views import View, site_handler
from headlab.base.errors import UnsupportedModelError

Keep = Mapping[tuple[str, int], Tensor]  # per edited layer (head,), bool: False = removed
Fill = Callable[[Site, Tensor], Tensor]  # what stands in for the slices (..., head, value_dim) of a layer


@contextlib.contextmanager
def removed(
    model: nn.Module, sites: Sequence[Site], view: View, keep: Keep, ablation: str, means: Any = None
) -> Iterator[set[tuple[str, int]]]:
    """Inside, the model runs without the heads that `keep` leaves out; yields the set of layers reached so far.

    Layers without one projection are gated where they are computed, and count as reached.
    """
    if ablation == "uniform":
        with _uniform(model, sites, view, keep) as reached:
            yield reached
        return
    inside = {site.key: keep[site.key] for site in sites if site.projection is None and site.key in keep}
    reached = set(inside)

    def edit(site: Site, entering: Tensor) -> Tensor | None:
        if site.key not in keep:
            return None
        reached.add(site.key)
        kept = keep[site.key].to(entering.device).unsqueeze(-1)
        heads = per_head(entering, site)
        return torch.where(kept, heads, fill(site, heads)).reshape(entering.shape)

    with (
        gated(model, sites, view, inside),
        _filling(model, ablation, means) as fill,
        edits_at_projections(model, sites, edit),
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
    hooks += [entrances[0].register_forward_hook(forget)]
    try:
        yield lambda: now[0] if now else None
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def _uniform(model: nn.Module, sites: Sequence[Site], view: View, keep: Keep) -> Iterator[set[tuple[str, int]]]:
    """Inside, removed heads look at every visible key alike (Kovaleva et al. 2019): values are mixed in equal parts.

    A learned sink takes nothing then, and a gate on the head's output works on the mix.
    """
    reached: set[tuple[str, int]] = set()
    met: list[Site] = []
    plain = site_handler(list(sites), lambda site, call: met.append(site), view)

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

    with view.engage(model, handler):
        yield reached


def uniform_weights(call: AttentionCall) -> Tensor:
    """Equal weights on the keys that each query sees, (batch or 1, head or 1, query, key) in float32."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    device = call.query.device if call.weights is None else call.weights.device
    if call.mask is not None:
        visible = call.mask if call.mask.dtype == torch.bool else call.mask > -1e4  # an additive mask
        visible = visible[..., :keys]
    else:
        visible = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
        visible = visible.tril() if call.causal else visible
    weights = visible.float()
    return weights / weights.sum(-1, keepdim=True).clamp_min(1)


def uniform_output(call: AttentionCall) -> Tensor:
    """The plain mean of the visible values, (batch, query, head, value_dim) in float32."""
    values = call.value.repeat_interleave(call.n_heads // call.value.shape[1], 1).float()
    mixed = torch.matmul(uniform_weights(call), values).transpose(1, 2)
    return mixed.expand(call.query.shape[0], call.query.shape[2], -1, -1)


def refuse_ablation(ablation: str, sites: Sequence[Site]) -> None:
    """Raise UnsupportedModelError where a layer among `sites` cannot be ablated that way."""
    for site in sites:
        if ablation in ("mean", "resample") and site.projection is None:
            what = "a mean" if ablation == "mean" else "another text's"
            raise UnsupportedModelError(f"{site.name} has no single output projection whose input could be {what}.",
                                        "Use zero or uniform ablation with this model.")  # fmt: skip
        if ablation == "uniform" and not site.seen:
            raise UnsupportedModelError(f"The {site.kind} layer {site.layer} was declared without weights, so that its "
                                        "attention cannot be made uniform.",
                                        "Name a module that returns its attention as `weights`.")  # fmt: skip
