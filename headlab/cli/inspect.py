"""`headlab inspect`: what a model's heads are, and what was proven about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from headlab.cli.options import Json, Model, ModelOptions, TalkOptions
from headlab.cli.output import Progress, print_json, table_text

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.attention.sites import Site

PROOF_FAILED = 3


def inspect(model: Model, opened: ModelOptions, talk: TalkOptions, json: Json = False) -> None:
    """Heads per layer and kind, widths, parameters, and what was proven about the model."""
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
        "kv_cache_bytes_per_token": kv_cache_bytes_per_token(heads),
        "n_heads": heads.n_heads,
        "layers": [_layer(site) for site in heads.sites],
        "proofs": [{"name": p.name, "passed": bool(p.passed), "detail": str(p.detail)} for p in heads.proofs],
    }


def flops_per_token(heads: Heads) -> int | None:
    """Floating-point operations of one forward pass over the probe's short text, divided by its tokens.

    Counted by torch as two for each multiplication with addition. None for sequence-to-sequence models, where the
    cost of a token depends on the side it is on.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from headlab.attention.example import example_batch

    batch = example_batch(heads.model)
    if batch.target is not None:
        return None
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        heads.model(**batch.inputs)
    return round(counter.get_total_flops() / batch.source.ids.numel())


def kv_cache_bytes_per_token(heads: Heads) -> int:
    """Bytes that each further token adds to the cache of keys and values, in the model's precision; 0 in an encoder."""
    size = next(heads.model.parameters()).element_size()
    return sum(size * s.n_kv_heads * (s.head_dim + s.value_dim) for s in heads.sites if s.kind == "decoder")


def _layer(site: Site) -> dict[str, Any]:
    return {
        "kind": site.kind,
        "layer": site.layer,
        "heads": site.n_heads,
        "kv_groups": site.n_kv_heads,
        "key_width": site.head_dim,
        "value_width": site.value_dim,
        "causal": site.causal,
        "attention": site.name,
        "projection": site.projection_name,
    }


def as_text(facts: dict[str, Any]) -> str:
    """The facts for people: equal layers on one line, then one line per proof."""
    adds = ", ".join(name for name, added in facts["adds"].items() if added) or "nothing"
    lines = [
        f"{facts['model']}: {facts['class']}, {facts['parameters']:,} parameters, {facts['dtype']}",
        f"revision {facts['revision']}, at most {facts['max_length']} tokens, the tokenizer adds {adds}",
        f"{facts['n_heads']} heads, {_costs(facts)}",
        "",
        table_text(_merged_layers(facts["layers"])),
        "",
    ]
    lines += [f"{'proven' if p['passed'] else 'FAILED'}: {p['name']} ({p['detail']})" for p in facts["proofs"]]
    return "\n".join(lines)


def _costs(facts: dict[str, Any]) -> str:
    flops = facts["flops_per_token"]
    counted = "" if flops is None else f"{flops / 1e6:,.1f} million FLOPs and "
    return f"{counted}{facts['kv_cache_bytes_per_token']:,} bytes of key-value cache per token"


def _merged_layers(layers: list[dict[str, Any]]) -> Any:
    """Consecutive layers that differ in their number only, as one row `0 to 5`."""
    import pandas as pd

    table = pd.DataFrame(layers).drop(columns=["attention", "projection"])
    rest = [column for column in table.columns if column != "layer"]
    starts = (table[rest] != table[rest].shift()).any(axis=1).cumsum()
    merged = table.groupby(starts, sort=False).first()
    first, last = (getattr(table.groupby(starts)["layer"], name)() for name in ("min", "max"))
    merged["layer"] = [str(a) if a == b else f"{a} to {b}" for a, b in zip(first, last, strict=True)]
    return merged.rename(columns={"layer": "layers", "heads": "heads_per_layer"})
