"""What the coverage run asks of one model type, with checks of its own beside the proofs that headlab makes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers.pytorch_utils import Conv1D

import headlab
from headlab.attention.prove.example import example_batch
from headlab.attention.reach.sites import difference, output_tensor
from headlab.base.errors import UnsupportedModelError
from headlab.models.texts.batch import Batch
from headlab.testing.tiny.inputs import tiny_batch
from headlab.testing.tiny.models import tiny_model

OUTPUT_TOLERANCE, STATISTIC_TOLERANCE = 2e-4, 1e-3
NAN = float("nan")
SHORTEST = 7  # tokens in the shortest text that a model is shown: a router chooses among fewer
MAP_FIELDS = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}


def examine(model_type: str, purpose: str) -> dict[str, Any]:
    """One line of the table: what was built, seen, proven, and found here again; `wrong` names false claims."""
    row: dict[str, Any] = {"type": model_type, "built": False, "outcome": "not built", "wrong": ""}
    try:
        model = tiny_model(model_type, purpose)
        row |= {"class": type(model).__name__, "parameters": sum(p.numel() for p in model.parameters())}
        batch = tiny_batch(model) or example_batch(model)
        with torch.no_grad(), _SoftmaxCounter() as counter:
            output_tensor(model(**batch.inputs))
    except Exception as error:  # a model's own code may raise anything
        return row | {"reason": first_line(error)}
    row |= {"built": True, "expected": expected_layers(model.config), "softmaxes": counter.found}
    try:
        heads = headlab.Heads(model, example=batch)
    except UnsupportedModelError as error:
        outcome = "refused" if counter.found or counter.chunked else "no softmax attention"
        return row | {"outcome": outcome, "reason": first_line(error)}
    except Exception as error:  # headlab refuses with UnsupportedModelError only
        return row | {"outcome": "crashed", "wrong": f"Heads: {first_line(error)}"}
    row |= _claims(heads)
    checks = {
        "masks": lambda: check_masks(heads, batch),
        "statistics": lambda: check_statistics(
            heads, batch, tiny_model(model_type, purpose, attn_implementation="eager")
        ),
    }
    for name, check in checks.items():
        try:
            row |= check()
        except Exception as error:  # what a claim must not do
            row["wrong"] = f"{row['wrong']} {name}: {first_line(error)}".strip()
    return _judged(row)


def first_line(error: BaseException) -> str:
    """An error's kind and the first line of its text."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:400]


def _claims(heads: Any) -> dict[str, Any]:
    tier, unseen = getattr(heads, "tier", 1), tuple(getattr(heads, "unseen", ()))
    kinds = Counter(site.kind for site in heads.sites)
    row: dict[str, Any] = {
        "seen": " ".join(f"{kind} {count}" for kind, count in kinds.items()),
        "heads": heads.n_heads,
        "tier": tier,
        "unseen": "; ".join(unseen),
        "outcome": "statistics only" if tier == 3 else "partial" if unseen else "proven",
    }
    for proof in heads.proofs:
        name = next((short for short in ("outputs", "gating", "maps") if short in proof.name), "removal")
        row[{"gating": "gates"}.get(name, name)] = ("" if proof.passed else "no: ") + proof.detail
    if tier == 3:
        row["reason"] = next((proof.detail for proof in heads.proofs if not proof.passed), "")
    return row


def _judged(row: dict[str, Any]) -> dict[str, Any]:
    wrong = [row["wrong"]] if row["wrong"] else []
    sites = sum(int(word) for word in row["seen"].split() if word.isdigit())
    if row["outcome"] == "proven" and sites != row["softmaxes"]:
        wrong.append(f"claims to see every layer: {sites} layers, where the model makes {row['softmaxes']} softmaxes")
    if row.get("mask_gap", 0.0) > OUTPUT_TOLERANCE:
        wrong.append(f"masked outputs differ by {row['mask_gap']:.1e} from those with zeroed weights")
    if row.get("mask_effect", 1.0) == 0.0:
        wrong.append("removing heads changes nothing")
    if row.get("statistics_gap", 0.0) > STATISTIC_TOLERANCE:
        wrong.append(f"statistics differ by {row['statistics_gap']:.1e} from those of eager maps")
    return row | {"wrong": "; ".join(wrong)}


class _SoftmaxCounter(TorchFunctionMode):
    """Counts softmaxes over token-by-token shapes and calls of the stock attention function."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0
        self.chunked = 0  # softmaxes of four dimensions and more over other shapes: attention in chunks

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function in (functional.scaled_dot_product_attention, functional.multi_head_attention_forward):
            self.found += 1
        elif getattr(function, "__name__", "") == "softmax" and isinstance(result, Tensor):
            token_by_token = result.dim() >= 3 and min(result.shape[-2:]) >= SHORTEST
            self.found += token_by_token
            self.chunked += result.dim() >= 4 and not token_by_token
        return result


def expected_layers(config: Any) -> int | None:
    """Attention layers that the configuration speaks of: not linear ones; cross-attention counts for itself."""
    if getattr(config, "is_encoder_decoder", False):
        sides = (("encoder_layers", "num_encoder_layers"), ("decoder_layers", "num_decoder_layers"))
        counts = [_first(config, (*names, "num_layers", "num_hidden_layers")) for names in sides]
        return None if None in counts else counts[0] + 2 * counts[1]  # type: ignore[operator]
    try:
        text = config.get_text_config()
    except ValueError:
        text = config
    kinds = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None)
    if kinds:
        return sum("attention" in kind and "linear" not in kind or kind == "hybrid" for kind in kinds)
    return _first(text, ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))


def _first(config: Any, names: tuple[str, ...]) -> int | None:
    return next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)


def check_masks(heads: Any, batch: Batch) -> dict[str, Any]:
    """Outputs with a random third of the heads masked against outputs with their rows of the weights zeroed.

    Layers that share a module or a projection lose the same heads. Layers without a plain projection are left out.
    """
    owner = {id(s.module): s.projection for s in heads.sites if isinstance(s.projection, nn.Linear | Conv1D)}
    by_weight: dict[int, list[Any]] = {}
    for site in sorted(heads.sites, key=lambda site: site.projection is None):
        if id(site.module) in owner:
            by_weight.setdefault(id(owner[id(site.module)].weight), []).append(site)
    if getattr(heads, "tier", 1) == 3 or not by_weight:
        return {"masked_layers": 0}
    chance, removed, weights = random.Random(0), [], []
    for sites in by_weight.values():
        chosen = chance.sample(range(sites[0].n_heads), max(1, sites[0].n_heads // 3))
        removed += [(site.kind, site.layer, head) for site in sites for head in chosen]
        weights.append((sites[0], chosen))
    mask = headlab.HeadMask.removing(removed, like=heads)
    with torch.no_grad():
        native = output_tensor(heads.model(**batch.inputs))
        with heads.masked(mask):
            masked = output_tensor(heads.model(**batch.inputs))
        before = [_zeroed(site, chosen) for site, chosen in weights]
        zeroed = output_tensor(heads.model(**batch.inputs))
        for (site, _), weight in zip(weights, before, strict=True):
            site.projection.weight.copy_(weight)
    layers = sum(len(sites) for sites in by_weight.values())
    return {
        "masked_layers": layers,
        "masked_heads": len(removed),
        "mask_gap": difference(masked, zeroed, batch),
        "mask_effect": difference(masked, native, batch),
    }


def _zeroed(site: Any, chosen: list[int]) -> Tensor:
    """Zero the rows that these heads feed, in place; returns the weight as it was."""
    weight = site.projection.weight
    before = weight.clone()
    rows = weight if isinstance(site.projection, Conv1D) else weight.T
    for head in chosen:
        rows[head * site.value_dim : (head + 1) * site.value_dim] = 0
    return before


def check_statistics(heads: Any, batch: Batch, eager: nn.Module) -> dict[str, Any]:
    """Entropy and masses on the first and the own token, of `observe` against loops over the maps of an eager twin."""
    eager.load_state_dict(heads.model.state_dict())
    try:
        with torch.no_grad():
            output = eager(**batch.inputs, output_attentions=True)
    except (TypeError, ValueError):
        output = None  # returns no maps
    table = heads.observe([batch])
    worst, compared = 0.0, 0
    for kind, maps in _maps(output, heads).items():
        sites = [site for site in heads.sites if site.kind == kind]
        for site, attention in _matched(sites, maps, getattr(heads, "unseen", ())):
            rows = table.sort_index().loc[(site.kind, site.layer)]
            worst, compared = max(worst, _gap(rows, attention.double(), kind, batch)), compared + 1
    return {"compared_layers": compared, "statistics_gap": worst}


def _maps(output: Any, heads: Any) -> dict[str, list[Tensor]]:
    def four_dimensional(name: str) -> list[Tensor]:
        return [m for m in (getattr(output, name, None) or ()) if isinstance(m, Tensor) and m.dim() == 4]

    found = {kind: maps for kind, name in MAP_FIELDS.items() if (maps := four_dimensional(name))}
    single = four_dimensional("attentions")
    if single and not found and heads.single_stack:
        found[heads.sites[0].kind] = single
    return found


def _matched(sites: list[Any], maps: list[Tensor], unseen: Any) -> list[tuple[Any, Tensor]]:
    """Sites with their maps, in order; where some layers were not seen nothing says which is which, so none."""
    same = len(sites) == len(maps) and not unseen
    pairs = list(zip(sites, maps, strict=True)) if same else []
    return [(site, attention) for site, attention in pairs if attention.shape[1] == site.n_heads]


def _gap(rows: Any, attention: Tensor, kind: str, batch: Batch) -> float:
    """Largest difference of the three statistics of one layer; attention (batch, head, query, key)."""
    target = batch.target if batch.target is not None else batch.source
    queries = batch.source if kind == "encoder" else target
    keys = batch.source if kind in ("encoder", "cross") else target
    if attention.shape[0] != queries.ids.shape[0] or attention.shape[2:] != (queries.ids.shape[1], keys.ids.shape[1]):
        return 0.0
    worst = 0.0
    for head in range(attention.shape[1]):
        entropies, firsts, owns, visible = [], [], [], []
        for text, query in queries.valid.nonzero().tolist():
            row = attention[text, head, query]
            share = row / row.sum()  # not a number where a query looks at nothing
            entropies.append(-(share[share > 0] * share[share > 0].log()).sum().item() if row.sum() > 0 else NAN)
            firsts.append(row[int(keys.valid[text].int().argmax())].item())
            if kind != "cross":
                owns.append(row[query].item())
                visible.append(bool(attention[text, :, query, query].any()))
        told = rows.loc[head]
        gaps = [abs(told["entropy"] - _mean(entropies)), abs(told["first_mass"] - _mean(firsts))]
        if owns:  # over all queries, or over those that may look at themselves; a weight may also be 0 by rounding
            seen = [own for own, own_visible in zip(owns, visible, strict=True) if own_visible]
            gaps.append(min(abs(told["self_mass"] - _mean(owns)), abs(told["self_mass"] - _mean(seen))))
        worst = max(worst, *(gap for gap in gaps if gap == gap))
    return worst


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else NAN
