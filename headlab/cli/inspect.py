"""`headlab inspect` on the screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from headlab.cli.options import Json, Options, TalkOptions
from headlab.cli.output import Progress, print_json, table_text
from headlab.commands.inspect import InspectRequest, run

PROOF_FAILED = 3


def inspect(options: Annotated[Options, InspectRequest], talk: TalkOptions, json: Json = False) -> None:
    """Heads per layer and kind, shared keys and values, costs, and what was proven about the model."""
    with Progress(quiet=talk.quiet) as progress:
        facts = run(InspectRequest(**options), progress)
    if json:
        print_json(facts)
    else:
        print(as_text(facts))
    if not all(proof["passed"] for proof in facts["proofs"]):
        raise typer.Exit(PROOF_FAILED)


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
