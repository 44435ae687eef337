"""`headlab inspect`: what a model's heads are, what they cost, and what was proven about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headlab.base.progress import Progress
from headlab.commands.options import ModelOptions
from headlab.commands.stages import Stages

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.attention.reach.sites import Site


@dataclass(frozen=True, kw_only=True)
class InspectRequest(ModelOptions):
    """Heads per layer and kind, shared keys and values, costs, and what was proven about the model."""

    NAME: ClassVar[str] = "inspect"


def run(request: InspectRequest, progress: Progress | None = None) -> dict[str, Any]:
    """Open the model and describe its heads, as plain values; raises what opening the model raises."""
    request.check()
    stages = Stages(progress)
    stages.load_libraries()
    from headlab.attention.heads import Heads

    stages.begin(f"opening {request.model}")
    checkpoint = request.open_checkpoint()
    stages.begin("probing and proving")
    return describe(Heads(checkpoint))


def describe(heads: Heads) -> dict[str, Any]:
    """Everything that `headlab inspect` knows of opened heads, as plain values."""
    checkpoint, model = heads.checkpoint, heads.model
    parameters = sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    return {
        "model": checkpoint.name if checkpoint else type(model).__name__,
        "class": type(model).__name__,
        "revision": checkpoint.revision if checkpoint else None,
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "parameters": parameters,
        "max_length": checkpoint.max_length if checkpoint else None,
        "adds": dict(checkpoint.adds) if checkpoint else {},
        "flops_per_token": flops_per_token(heads),
        "kv_elements_per_token": sum(kv_elements(site) for site in heads.sites),
        "kv_cache_bytes_per_token": kv_cache_bytes_per_token(heads),
        "n_heads": heads.n_heads,
        "tier": heads.tier,
        "seen_by": heads.view.name,
        "unseen": list(heads.unseen),
        "layers": [_layer(site, heads.tier) for site in heads.sites],
        "proofs": [{"name": p.name, "passed": bool(p.passed), "detail": str(p.detail)} for p in heads.proofs],
    }


def flops_per_token(heads: Heads) -> int | None:
    """Floating-point operations of one forward pass over the probe's short text, divided by its tokens.

    Counted by torch as two for each multiplication with addition. None for sequence-to-sequence models, where the
    cost of a token depends on the side it is on.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    batch = heads.subject.example
    if batch.target is not None:
        return None
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        heads.model(**batch.inputs)
    return round(counter.get_total_flops() / batch.source.ids.numel())


def kv_elements(site: Site) -> int:
    """Numbers that each further token adds to the layer's cache of keys and values; 0 outside a decoder."""
    return site.n_kv_heads * (site.head_dim + site.value_dim) if site.kind == "decoder" else 0


def kv_cache_bytes_per_token(heads: Heads) -> int:
    """Bytes that each further token adds to the cache of keys and values, in the model's precision; 0 in an encoder."""
    size = next(heads.model.parameters()).element_size()
    return sum(size * kv_elements(site) for site in heads.sites)


def attention_parameters(site: Site, tier: int) -> int | None:
    """Parameters of the layer's attention module and of its output projection, each counted once.

    None in tier 3, where no module of the layer is known. Layers that share a module each count it.
    """
    if tier == 3:
        return None
    modules = [site.module] if site.projection is None else [site.module, site.projection]
    return sum(p.numel() for p in {id(p): p for module in modules for p in module.parameters()}.values())


def _layer(site: Site, tier: int) -> dict[str, Any]:
    size = site.n_heads // site.n_kv_heads
    return {
        "kind": site.kind,
        "layer": site.layer,
        "heads": site.n_heads,
        "kv_heads": site.n_kv_heads,
        "kv_groups": [list(range(first, first + size)) for first in range(0, site.n_heads, size)],
        "key_width": site.head_dim,
        "value_width": site.value_dim,
        "causal": site.causal,
        "attention_parameters": attention_parameters(site, tier),
        "kv_elements_per_token": kv_elements(site),
        "attention": site.name,
        "projection": site.projection_name,
    }
