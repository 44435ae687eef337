"""Resample and uniform ablation against plain loops over single texts, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from headlab.attention.change.donors import Donors
from headlab.attention.heads import Heads
from headlab.base.errors import DataError, UnsupportedModelError, UsageError
from headlab.base.masks import ABLATIONS, HeadMask
from tests.support.reference import (
    make_batch,
    output_of,
    projection_inputs,
    random_text,
    replace_slice,
    sample_batches,
    sample_texts,
    some_mask,
)
from tests.support.tiny_models import FAMILIES, projections, tiny_model

SAME = ["bert", "gpt2", "llama", "t5", "bart"]  # encoder, decoder, GQA, two encoder-decoders


def singles(name: str) -> Iterator[tuple[int, object]]:
    """Each sample text as a batch of its own, without padding."""
    texts, targets = sample_texts(name)
    for row, text in enumerate(texts):
        yield row, make_batch([text], None if targets is None else [targets[row]], first_id=row)


def outputs_by_text(model: nn.Module, batches) -> dict[int, torch.Tensor]:
    """Logits at the real tokens of every text, by example."""
    found = {}
    for batch in batches:
        with torch.no_grad():
            logits = model(**batch.inputs).logits
        valid = (batch.target or batch.source).valid
        found |= {example: logits[row][valid[row]] for row, example in enumerate(batch.examples)}
    return found


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return (found - expected).abs().max().item() < 2e-5 * max(1.0, expected.abs().max().item())


# ---- uniform


def order_of_softmax(name: str) -> list[tuple[str, int]]:
    family = FAMILIES[name]
    if not family.two_stacks:
        return [("decoder" if family.causal else "encoder", layer) for layer in family.layers]
    return [("encoder", 0), ("encoder", 1), ("decoder", 0), ("cross", 0), ("decoder", 1), ("cross", 1)]


def uniform_by_hand(model: nn.Module, name: str, mask: HeadMask, batch) -> torch.Tensor:
    """Eager attention whose softmax is made uniform over the scores that are not masked, for the removed heads."""
    twin = copy.deepcopy(model)
    twin.set_attn_implementation("eager")
    waiting = order_of_softmax(name)
    softmax = nn.functional.softmax

    def changed(scores, *args, **kwargs):
        weights = softmax(scores, *args, **kwargs)
        if scores.dim() == 4:
            key = waiting.pop(0)
            for head, kept in enumerate(mask[key]):
                if not kept:
                    visible = (scores[:, head] > -1e4).to(weights.dtype)
                    weights[:, head] = visible / visible.sum(-1, keepdim=True).clamp_min(1)
        return weights

    nn.functional.softmax = changed
    try:
        output = output_of(twin, batch)
    finally:
        nn.functional.softmax = softmax
    assert not waiting
    return output


@pytest.mark.parametrize("pad_side", ["right", "left"])
@pytest.mark.parametrize("name", [*SAME, "gpt_neox", "marian"])
def test_uniform_ablation_makes_the_removed_heads_softmax_uniform(name: str, pad_side: str) -> None:
    model = tiny_model(name)
    heads = Heads(model)
    mask = some_mask(heads)
    for batch in sample_batches(name, pad_side):
        with heads.masked(mask, "uniform"):
            found = output_of(model, batch)
        assert close(found, uniform_by_hand(model, name, mask, batch))
        assert (found - output_of(model, batch)).abs().max() > 1e-3


def test_uniform_ablation_works_where_the_model_computes_its_own_attention() -> None:
    model = tiny_model("mpnet")
    heads = Heads(model)
    assert heads.tier == 2
    batch = make_batch([random_text(n, n, separators=False) for n in (7, 5)])
    mask = HeadMask.removing("L0H1,L1H2", like=heads)
    softmax, layer = nn.functional.softmax, iter((1, 2))

    def changed(scores, *args, **kwargs):
        weights = softmax(scores, *args, **kwargs)
        if scores.dim() == 4:
            visible = (scores[:, 0] > -1e4).to(weights.dtype)
            weights[:, next(layer)] = visible / visible.sum(-1, keepdim=True)
        return weights

    nn.functional.softmax = changed
    try:
        expected = output_of(model, batch)
    finally:
        nn.functional.softmax = softmax
    with heads.masked(mask, "uniform"):
        assert close(output_of(model, batch), expected)


@pytest.mark.parametrize("ablation", ["zero", "mean", "uniform"])
@pytest.mark.parametrize("name", ["llama", "bart"])
def test_generation_with_a_cache_is_that_of_whole_passes(name: str, ablation: str) -> None:
    """Step by step the removed heads see as many keys as in one pass over the whole text."""
    model = tiny_model(name)
    heads = Heads(model)
    batch = sample_batches(name)[0]
    ids, mask = batch.inputs["input_ids"][:1, :5], some_mask(heads)
    settings = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "num_beams": 1, "eos_token_id": None}
    settings |= {"pad_token_id": 0, "forced_eos_token_id": None, "forced_bos_token_id": None}
    means = heads.replacements(ablation, sample_batches(name))
    with heads.masked(mask, ablation, means):
        found = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)
    whole = found[:, :1] if name == "bart" else ids
    for _ in range(5):
        inputs = {"input_ids": ids, "decoder_input_ids": whole} if name == "bart" else {"input_ids": whole}
        with torch.no_grad(), heads.masked(mask, ablation, means):
            logits = model(**inputs, use_cache=False).logits[:, -1]
        whole = torch.cat([whole, logits.argmax(-1, keepdim=True)], 1)
    assert torch.equal(found, whole)


def test_resample_refuses_generation() -> None:
    model = tiny_model("llama")
    heads = Heads(model)
    donors = heads.donors(sample_batches("llama"))
    ids = sample_batches("llama")[0].inputs["input_ids"][:1, :5]
    with pytest.raises(UnsupportedModelError, match="generation"), heads.masked(some_mask(heads), "resample", donors):
        model.generate(input_ids=ids, max_new_tokens=3, min_new_tokens=3, pad_token_id=0)


# ---- resample


def resampled_by_hand(model: nn.Module, name: str, mask: HeadMask, donors: Donors) -> dict[int, torch.Tensor]:
    """Every text alone, with the removed heads' slices taken from its donor alone; token t takes donor token t."""
    rows, alone = {}, {}
    for example, batch in singles(name):
        alone[example] = batch
    digests = {example: digest for digest, example in donors.owners.items()}
    for example, batch in alone.items():
        giver = donors.donors[donors.donor_of(digests[example])].example
        assert giver != example
        entering = projection_inputs(model, alone[giver], name)
        twin = copy.deepcopy(model)
        places = projections(twin, name)
        for kind, layer, head in mask.removed:
            given = entering[kind, layer].reshape(-1, entering[kind, layer].shape[-1])
            width = given.shape[-1] // 4
            tokens = batch.source if kind == "encoder" or batch.target is None else batch.target
            places_in_giver = torch.arange(tokens.ids.shape[1]) % len(given)
            mine = given[places_in_giver, head * width : (head + 1) * width]
            places[kind, layer][0].register_forward_pre_hook(put(head, mine))
        rows |= outputs_by_text(twin, [batch])
    return rows


def put(head: int, slices: torch.Tensor):
    def hook(_, arguments):
        entering = arguments[0].clone()
        shape = entering.shape
        entering = entering.reshape(-1, shape[-1])
        entering[:, head * slices.shape[1] : (head + 1) * slices.shape[1]] = slices
        return (entering.reshape(shape), *arguments[1:])

    return hook


@pytest.mark.parametrize("name", SAME)
def test_resample_ablation_gives_each_text_the_slices_of_another(name: str) -> None:
    model = tiny_model(name)
    heads = Heads(model)
    mask = some_mask(heads)
    donors = heads.donors(sample_batches(name), seed=3)
    assert len(donors) == 5
    expected = resampled_by_hand(model, name, mask, donors)
    for pad_side in ("right", "left") if name == "t5" else ("right",):  # others count positions from the padding on
        with heads.masked(mask, "resample", donors):
            found = outputs_by_text(model, sample_batches(name, pad_side))
        assert all(close(found[example], expected[example]) for example in expected)
    native = outputs_by_text(model, sample_batches(name))
    assert max((native[example] - expected[example]).abs().max() for example in expected) > 1e-3


def test_donors_do_not_depend_on_batches_and_never_are_of_the_same_example() -> None:
    model = tiny_model("llama")
    heads = Heads(model)
    texts = [random_text(5 + i % 7, i, separators=False) for i in range(40)]
    whole = heads.donors([make_batch(texts)], n=6, seed=1)
    parts = heads.donors([make_batch(texts[i : i + 9], first_id=i) for i in range(0, 40, 9)], n=6, seed=1)
    assert [d.digest for d in whole.donors] == [d.digest for d in parts.donors] and len(whole) == 6
    for one, other in zip(whole.donors, parts.donors, strict=True):
        assert all(torch.allclose(one.slices[key], other.slices[key], atol=1e-5) for key in one.slices)
    other = heads.donors([make_batch(texts)], n=6, seed=2)
    assert {d.digest for d in other.donors} != {d.digest for d in whole.donors}
    givers = {whole.donor_of(digest) for digest in whole.owners}
    assert len(givers) > 3
    for digest, example in whole.owners.items():
        assert whole.donors[whole.donor_of(digest)].example != example


def test_rows_of_one_example_are_no_donors_of_each_other() -> None:
    heads = Heads(tiny_model("llama"))
    texts = [random_text(6, i, separators=False) for i in range(4)]
    batch = make_batch(texts)
    pairs = type(batch)(batch.inputs, batch.source, None, (7, 7, 8, 8))
    donors = heads.donors([pairs])
    for digest, example in donors.owners.items():
        assert donors.donors[donors.donor_of(digest)].example != example
    with pytest.raises(DataError, match="at least 2 examples"):
        heads.donors([type(batch)(batch.inputs, batch.source, None, (7, 7, 7, 7))])


# ---- refused


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_every_ablation_leaves_the_model_as_it_was(ablation: str) -> None:
    model = tiny_model("bart")
    heads = Heads(model)
    batches = sample_batches("bart")
    means = heads.replacements(ablation, batches)
    before = output_of(model, batches[0])
    hooks = [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]
    with pytest.raises(KeyError), heads.masked(some_mask(heads), ablation, means):
        output_of(model, batches[0])
        raise KeyError
    assert [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()] == hooks
    assert torch.equal(output_of(model, batches[0]), before)


def test_what_an_ablation_needs_is_asked_for() -> None:
    model = tiny_model("bert")
    heads = Heads(model)
    mask = HeadMask.removing("L0H1", like=heads)
    with pytest.raises(UsageError, match="heads.donors"), heads.masked(mask, "resample"):
        pass
    with pytest.raises(UsageError, match="resample"), heads.masked(mask, "resampled"):
        pass
    donors = heads.donors(sample_batches("bert"))
    batch = sample_batches("bert")[0]
    embeddings = model.get_input_embeddings()(batch.inputs["input_ids"])
    with pytest.raises(UnsupportedModelError, match="token ids"), heads.masked(mask, "resample", donors):
        model(inputs_embeds=embeddings)


def test_mean_of_one_slice_is_what_replace_slice_writes() -> None:
    model = tiny_model("bert")
    heads = Heads(model)
    batch = sample_batches("bert")[0]
    mean = torch.full((8,), 0.5)
    means = {key: torch.full((4, 8), 0.5) for key in heads.heads_per_layer}
    twin = copy.deepcopy(model)
    projections(twin, "bert")["encoder", 0][0].register_forward_pre_hook(replace_slice(2, mean))
    with heads.masked(HeadMask.removing("L0H2", like=heads), "mean", means):
        assert close(output_of(model, batch), output_of(twin, batch))
