"""The head table computed the slow way: eager attention maps, plain loops over queries, nothing of headlab's engine."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import nn

from headlab.attention.heads import Heads
from headlab.base.masks import HeadMask
from headlab.models.texts.batch import Batch, Tokens
from tests.support.tiny_models import FAMILIES, FIRST, PAD, SEPARATOR, VOCABULARY, WORDS, family_of, projections

STATISTICS = (
    "entropy",
    "entropy_norm",
    "max_weight",
    "first_mass",
    "separator_mass",
    "self_mass",
    "prev_mass",
    "next_mass",
    "distance",
    "sink_logit_mass",
)
REACH = 32
Key = tuple[str, int]


# ---- texts


def random_text(length: int, seed: int, *, separators: bool, first: bool = True) -> tuple[list[int], list[bool]]:
    """Token ids and which of them the tokenizer added; with separators one stands in the middle and one at the end."""
    ids = np.random.default_rng(seed).integers(WORDS, VOCABULARY, length).tolist()
    special = [False] * length
    if first:
        ids[0], special[0] = FIRST, True
    if separators:
        for place in (length // 2, length - 1):
            ids[place], special[place] = SEPARATOR, True
    return ids, special


def tokens(texts: Sequence[tuple[list[int], list[bool]]], pad_side: str) -> Tokens:
    """Padded tokens of texts as from random_text."""
    longest = max(len(ids) for ids, _ in texts)
    ids = torch.full((len(texts), longest), PAD)
    valid = torch.zeros(len(texts), longest, dtype=torch.bool)
    special = torch.zeros(len(texts), longest, dtype=torch.bool)
    for row, (text, added) in enumerate(texts):
        place = slice(0, len(text)) if pad_side == "right" else slice(longest - len(text), longest)
        ids[row, place] = torch.tensor(text)
        special[row, place] = torch.tensor(added)
        valid[row, place] = True
    return Tokens(ids, valid, special, (ids == SEPARATOR) & valid)


def make_batch(texts: list, targets: list | None = None, *, pad_side: str = "right", first_id: int = 0) -> Batch:
    """A batch of texts (and of their translations); example ids count from `first_id`."""
    source = tokens(texts, pad_side)
    inputs = {"input_ids": source.ids, "attention_mask": source.valid.long()}
    target = None
    if targets is not None:
        target = tokens(targets, "right")
        inputs |= {"decoder_input_ids": target.ids, "decoder_attention_mask": target.valid.long()}
    return Batch(inputs, source, target, examples=tuple(range(first_id, first_id + len(texts))))


def with_positions(batch: Batch) -> Batch:
    """The batch with position ids that count real tokens, without which padding on the left moves every token."""
    positions = (batch.source.valid.long().cumsum(-1) - 1).clamp_min(0)
    return Batch({**batch.inputs, "position_ids": positions}, batch.source, batch.target, batch.examples)


def sample_texts(name: str, lengths: Sequence[int] = (9, 12, 5, 7, 3)) -> tuple[list, list | None]:
    """Texts with and without separators, with and without a first special token; targets where there are two stacks."""
    texts = [random_text(n, 10 + i, separators=i % 2 == 0 and n > 3, first=i % 3 != 2) for i, n in enumerate(lengths)]
    if not FAMILIES[name].two_stacks:
        return texts, None
    return texts, [random_text(max(2, n - 3 + i % 3), 50 + i, separators=i % 2 == 1) for i, n in enumerate(lengths)]


def sample_batches(name: str, pad_side: str = "right", lengths: Sequence[int] = (9, 12, 5, 7, 3)) -> list[Batch]:
    """Two batches of the sample texts: three texts, then the rest."""
    texts, targets = sample_texts(name, lengths)
    return [
        make_batch(texts[a:b], None if targets is None else targets[a:b], pad_side=pad_side, first_id=a)
        for a, b in ((0, 3), (3, len(texts)))
        if texts[a:b]
    ]


# ---- what the model itself returns


def eager_maps(model: nn.Module, batch: Batch, name: str) -> dict[Key, np.ndarray]:
    """The maps that a copy of the model returns under eager attention, (batch, head, query, key) by (kind, layer)."""
    family = family_of(name)
    return returned_maps(model, batch, family.layers, family.causal, family.two_stacks)


def returned_maps(
    model: nn.Module, batch: Batch, layers: Sequence[int], causal: bool, two_stacks: bool = False
) -> dict[Key, np.ndarray]:
    """The same for a model of no listed family, whose layers with attention are `layers`."""
    twin = copy.deepcopy(model)
    twin.set_attn_implementation("eager")
    with torch.no_grad():
        output = twin(**batch.inputs, output_attentions=True)
    if two_stacks:
        by_kind = {
            "encoder": output.encoder_attentions,
            "decoder": output.decoder_attentions,
            "cross": output.cross_attentions,
        }
    else:
        by_kind = {"decoder" if causal else "encoder": output.attentions}
    maps = {}
    for kind, returned in by_kind.items():
        present = [m for m in returned if m is not None]
        assert len(present) == len(layers)
        maps |= {(kind, layer): m.double().numpy() for layer, m in zip(layers, present, strict=True)}
    return maps


def projection_inputs(model: nn.Module, batch: Batch, name: str) -> dict[Key, torch.Tensor]:
    """What enters each output projection, (batch, token, width), by hooks of our own on a copy of the model."""
    twin = copy.deepcopy(model)
    entering: dict[int, list[torch.Tensor]] = defaultdict(list)
    places = projections(twin, name)
    for module in {id(m): m for m, _ in places.values()}.values():
        module.register_forward_pre_hook(lambda m, args: entering[id(m)].append(args[0].detach().clone()))
    with torch.no_grad():
        twin(**batch.inputs)
    return {key: entering[id(module)][call] for key, (module, call) in places.items()}


# ---- statistics of one query, by their definitions


def row_statistics(row: np.ndarray, query: int, visible: list[int], first: int, separators: list[int]) -> dict:
    """All statistics of one query that are defined for it; `row` is its attention over all keys."""
    mass = row[visible].sum()
    share = row[visible] / mass
    entropy = -sum(p * math.log(p) for p in share if p > 0)
    found = {
        "entropy": entropy,
        "max_weight": row.max(),
        "first_mass": row[first],
        "sink_logit_mass": 1 - row.sum(),
        "distance": sum(row[j] * abs(query - j) for j in visible),
    }
    if len(visible) > 1:
        found["entropy_norm"] = entropy / math.log(len(visible))
    if separators:
        found["separator_mass"] = sum(row[j] for j in separators)
    for statistic, offset in (("self_mass", 0), ("prev_mass", -1), ("next_mass", 1)):
        if query + offset in visible:
            found[statistic] = row[query + offset]
    return found


class Pool:
    """Sums and counts by (key, head, statistic), for all queries and for words alone, and by text."""

    def __init__(self) -> None:
        self.total: dict[tuple, float] = defaultdict(float)
        self.count: dict[tuple, int] = defaultdict(int)
        self.by_text: dict[tuple, dict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))

    def add(self, place: tuple, value: float, text: int | None = None) -> None:
        self.total[place] += float(value)
        self.count[place] += 1
        if text is not None:
            self.by_text[place][text][0] += float(value)
            self.by_text[place][text][1] += 1

    def mean(self, place: tuple) -> float:
        return self.total[place] / self.count[place] if self.count.get(place) else math.nan


def head_pool(
    maps_of_batches: Iterable[tuple[Batch, dict[Key, np.ndarray]]],
    *,
    windows: dict[int, int] | None = None,
    norms: Iterable[dict[Key, np.ndarray]] | None = None,
) -> Pool:
    """Pooled statistics (key, head, name), their chance levels (key, "chance", name) and offsets (key, head, d)."""
    pool = Pool()
    norm_of_batches = list(norms) if norms is not None else None
    for number, (batch, maps) in enumerate(maps_of_batches):
        for key, attention in maps.items():
            window = (windows or {}).get(key[1])
            for text in range(len(batch)):
                norm = None if norm_of_batches is None else norm_of_batches[number][key]
                _add_text(pool, key, batch, text, attention[text], window, norm)
    return pool


def _add_text(
    pool: Pool, key: Key, batch: Batch, text: int, attention: np.ndarray, window: int | None, norm: np.ndarray | None
) -> None:
    kind, _ = key
    source, target = batch.source, batch.target
    queries = source if kind == "encoder" or target is None else target
    keys = source if kind in ("encoder", "cross") or target is None else target
    real = [j for j in range(keys.ids.shape[1]) if keys.valid[text, j]]
    separators = [j for j in real if keys.separator[text, j]]
    example = batch.examples[text]
    for query in range(queries.ids.shape[1]):
        if not queries.valid[text, query]:
            continue
        word = not queries.special[text, query]
        visible = [j for j in real if kind != "decoder" or (j <= query and (window is None or query - j < window))]
        uniform = np.zeros(attention.shape[-1])
        uniform[visible] = 1 / len(visible)
        for head in ("chance", *range(attention.shape[0])):
            row = uniform if head == "chance" else attention[head, query]
            found = row_statistics(row, query, visible, real[0], separators)
            if kind == "cross":
                found = {n: v for n, v in found.items() if n not in ("distance", "self_mass", "prev_mass", "next_mass")}
            if norm is not None and head != "chance":
                found["output_norm"] = norm[text, head, query]
            for statistic, value in found.items():
                pool.add((key, head, statistic), value, example)
                if word:
                    pool.add((key, head, statistic + "_words"), value)
            if kind != "cross":
                for j in visible:
                    if abs(j - query) <= REACH:
                        half = "odd" if example % 2 else "even"
                        pool.add((key, head, (half, j - query)), row[j], example)


def head_norms(model: nn.Module, batch: Batch, name: str, n_heads: int = 4) -> dict[Key, np.ndarray]:
    """||z_h W_h|| of each token, (batch, head, token), from our own hooks and a plain product for each head."""
    found = {}
    places = projections(model, name)
    for key, entering in projection_inputs(model, batch, name).items():
        module = places[key][0]
        weight = module.weight.detach() if family_of(name).transposed else module.weight.detach().T
        queries = batch.source if key[0] == "encoder" or batch.target is None else batch.target
        width = weight.shape[0] // n_heads
        entering = entering.reshape(*queries.ids.shape, -1).double()
        parts = [
            entering[..., h * width : (h + 1) * width] @ weight[h * width : (h + 1) * width].double()
            for h in range(n_heads)
        ]
        found[key] = torch.stack([part.norm(dim=-1) for part in parts], 1).numpy()
    return found


def best_offset(pool: Pool, key: Key, head: int, half: str) -> int:
    """The offset whose mean mass is furthest above that of a uniform head, on texts with even or odd ids.

    Only offsets that at least half of the queries see are looked at.
    """
    every = pool.count[key, "chance", (half, 0)]
    offsets = [d for d in range(-REACH, REACH + 1) if pool.count.get((key, "chance", (half, d)), 0) >= every / 2]
    return max(offsets, key=lambda d: pool.mean((key, head, (half, d))) - pool.mean((key, "chance", (half, d))))


# ---- models under masks


def output_of(model: nn.Module, batch) -> torch.Tensor:
    """Logits at real tokens."""
    with torch.no_grad():
        logits = model(**batch.inputs).logits
    return logits[(batch.target or batch.source).valid]


def some_mask(heads: Heads, seed: int = 0) -> HeadMask:
    """About a third of the heads removed, with at least one kept and one removed in every layer."""
    generator = torch.Generator().manual_seed(seed)
    keep = {}
    for key, size in heads.heads_per_layer.items():
        row = torch.rand(size, generator=generator) > 0.33
        row[0], row[-1] = (True, False) if key[1] % 2 else (False, True)
        keep[key] = row.numpy()
    return HeadMask(keep)


def replace_slice(head: int, mean: torch.Tensor):
    def hook(_, arguments):
        entering = arguments[0].clone()
        entering[..., head * len(mean) : (head + 1) * len(mean)] = mean
        return (entering, *arguments[1:])

    return hook
