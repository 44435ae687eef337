"""`headlab inspect`: what a model's heads are, and what was proven about them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from headlab.cli.options import Json, Model, ModelOptions, TalkOptions
from headlab.cli.output import Progress, print_json, table_text

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.attention.reach.sites import Site

PROOF_FAILED = 3


def inspect(model: Model, opened: ModelOptions, talk: TalkOptions, json: Json = False) -> None:
    """Heads per layer and kind, shared keys and values, costs, and what was proven about the model."""
    from headlab.attention.heads import Heads
    from headlab.cli.opening import open_checkpoint

    with Progress(quiet=talk.quiet) as progress:
        progress.step(f"opening {model}")
        checkpoint = open_checkpoint(model, opened)
        progress.step("probing and proving")
        heads = Heads(checkpoint)
    facts = describe(heads)
    if json:
        print_json(facts)
    else:
        print(as_text(facts))
    if not all(proof["passed"] for proof in facts["proofs"]):
        raise typer.Exit(PROOF_FAILED)


def describe(heads: Heads) -> dict[str, Any]:
    """Everything that `headlab inspect` knows, as plain values."""
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

    from headlab.attention.reach.example import example_batch

    batch = example_batch(heads.model)
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


def as_text(facts: dict[str, Any]) -> str:
    """The facts for people: equal layers on one line, then who shares keys and values, then one line per proof."""
    adds = ", ".join(name for name, added in facts["adds"].items() if added) or "nothing"
    lines = [
        f"{facts['model']}: {facts['class']}, {facts['parameters']:,} parameters, {facts['dtype']}",
        f"revision {facts['revision']}, at most {facts['max_length']} tokens, the tokenizer adds {adds}",
        f"{facts['n_heads']} heads, {_costs(facts)}",
        f"tier {facts['tier']}: {facts['seen_by']}",
        f"attention that is not seen: {', '.join(facts['unseen']) or 'none'}",
        "",
        table_text(_merged_layers(facts["layers"])),
        "",
        *_sharing(facts["layers"]),
        "",
    ]
    lines += [f"{'proven' if p['passed'] else 'FAILED'}: {p['name']} ({p['detail']})" for p in facts["proofs"]]
    return "\n".join(lines)


def _costs(facts: dict[str, Any]) -> str:
    flops = facts["flops_per_token"]
    counted = "" if flops is None else f"{_operations(flops)} and "
    cache = f"{facts['kv_elements_per_token']:,} numbers ({facts['kv_cache_bytes_per_token']:,} bytes)"
    return f"{counted}{cache} of key-value cache per token"


def _operations(flops: int) -> str:
    return f"{flops / 1e6:,.1f} million FLOPs" if flops >= 1e6 else f"{flops:,} FLOPs"


def _layer_ranges(layers: Iterable[int]) -> str:
    """`0 to 5, 8` for 0 to 5 and 8."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs)


def _sharing(layers: list[dict[str, Any]]) -> list[str]:
    """One line for each way in which query heads share keys and values, with the layers that do it so."""
    alike: dict[tuple[str, str], list[int]] = {}
    for row in layers:
        groups = row["kv_groups"]
        if len(groups) == row["heads"]:
            said = "every head has its own keys and values"
        else:
            said = f"heads {', '.join(f'{group[0]}-{group[-1]}' for group in groups)} share keys and values"
        alike.setdefault((row["kind"], said), []).append(row["layer"])
    return [f"{kind}, layers {_layer_ranges(numbers)}: {said}" for (kind, said), numbers in alike.items()]


def _merged_layers(layers: list[dict[str, Any]]) -> Any:
    """Layers of one kind that differ in their number only, as one row `0 to 5`."""
    import pandas as pd

    alike: dict[tuple, list[int]] = {}
    for row in layers:
        shown = {name: value for name, value in row.items() if name not in ("attention", "projection", "kv_groups")}
        number = shown.pop("layer")
        alike.setdefault(tuple(shown.items()), []).append(number)
    names = {"heads": "heads_per_layer", "attention_parameters": "parameters", "kv_elements_per_token": "kv_elements"}
    table = pd.DataFrame([dict(shown) for shown in alike]).rename(columns=names)
    table.insert(1, "layers", [_layer_ranges(numbers) for numbers in alike.values()])
    return table
