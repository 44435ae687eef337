"""Last resort: a model that can neither be seen from inside nor gated, but returns its attention maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headlab.attention.reach.sites import Proof, Site, output_tensor, run, tolerance
from headlab.attention.reach.state import hooked, implementation, no_new_hooks
from headlab.attention.reach.views import returned_maps
from headlab.models.texts.batch import Batch


def prove_returned_maps(model: nn.Module, batch: Batch, maps: dict[str, list[Tensor]]) -> tuple[list[Site], Proof]:
    """Sites of the maps that a model returns, and whether each map was shown to be that of its layer.

    Shown by disturbing the output of one layer after the other: the maps up to that layer stay, the next one changes.
    """
    name = "each returned map belongs to its layer"
    flat = [(kind, layer, attention) for kind, layers in maps.items() for layer, attention in enumerate(layers)]
    if not flat or any(attention.dim() != 4 for _, _, attention in flat):
        return [], Proof(name, False, "the model returns no maps of (batch, head, query, key)")
    sites = [
        _site(model, batch, kind, layer, attention, call, len(flat))
        for call, (kind, layer, attention) in enumerate(flat)
    ]
    for kind, layer, attention in flat:
        side = "encoder" if kind == "single" else kind
        n_queries, n_keys = (tokens.ids.shape[1] for tokens in (batch.queries(side), batch.keys(side)))
        real = attention.float()[:, :, :n_queries].sum(-1).amax(1)
        if tuple(attention.shape[2:]) != (n_queries, n_keys) or (real > 1 + 1e-2).any():
            return [], Proof(name, False, f"the {kind} map of layer {layer} has other shape or rows than attention")
    checked = 0
    for kind, layers in maps.items():
        result = _order_holds(model, batch, kind, layers) if kind != "cross" else None
        if result is False:
            return [], Proof(name, False, f"the {kind} maps do not follow the order of the layers")
        checked += len(layers) if result else 0
    passed = checked > 0
    return sites, Proof(name, passed, f"{checked} of {len(flat)} maps checked against the order of the layers")


def _site(model: nn.Module, batch: Batch, kind: str, layer: int, attention: Tensor, call: int, total: int) -> Site:
    causal = not bool(torch.triu((attention > 0).any(1), 1).any())
    if kind == "single":
        kind = "decoder" if causal else "encoder"
    heads = attention.shape[1]
    return Site(
        kind=kind,
        layer=layer,
        name=f"{kind} map {layer}",
        module=model,
        call=call,
        calls_per_pass=total,
        n_heads=heads,
        n_kv_heads=heads,
        head_dim=0,
        value_dim=0,
        causal=causal,
    )


def _order_holds(model: nn.Module, batch: Batch, kind: str, maps: list[Tensor]) -> bool | None:
    """Whether disturbing layer l leaves maps 0..l as they are and changes map l + 1; None where no stack fits."""
    stacks = [
        m
        for n, m in model.named_modules()
        if isinstance(m, nn.ModuleList) and len(m) == len(maps) and (kind == "single" or kind in n)
    ]
    if not stacks or len(maps) < 2:
        return None
    stack = stacks[0]
    for index in range(len(maps) - 1):
        hook = stack[index].register_forward_hook(_disturb)
        try:
            with hooked([hook]), torch.no_grad(), implementation(model, "eager"), no_new_hooks(model):
                changed = returned_maps(run(model, batch, output_attentions=True)).get(kind, [])
        except Exception:  # layers that hand on something else than hidden states; then nothing can be disturbed
            return None
        if len(changed) != len(maps):
            return None
        same = [(a - b).abs().max().item() <= tolerance(model) for a, b in zip(changed, maps, strict=True)]
        if not all(same[: index + 1]) or same[index + 1]:
            return False
    return True


def _disturb(module: nn.Module, arguments: tuple, output: object) -> object:
    """Shift the first half of a layer's features."""
    hidden = output_tensor(output) if not isinstance(output, tuple) else output[0]
    shifted = hidden.clone()
    shifted[..., : hidden.shape[-1] // 2] += 1
    return (shifted, *output[1:]) if isinstance(output, tuple) else shifted
