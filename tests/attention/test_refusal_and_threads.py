"""Models that are refused, with the reason; models observed at the same time."""

from __future__ import annotations

import copy
import threading

import pandas as pd
import pytest
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from headlab.attention.heads import Heads
from headlab.base.errors import ProofError, UnsupportedModelError, UsageError
from headlab.base.masks import HeadMask
from tests.support.planted_maps import PlantedAttention, PlantedConfig, at_offset, everywhere, planted
from tests.support.reference import sample_batches
from tests.support.tiny_models import BYPASSING, tiny_model


@pytest.mark.parametrize("name", BYPASSING)
def test_a_model_that_bypasses_the_interface_is_seen_by_the_tap(name: str) -> None:
    heads = Heads(tiny_model(name))
    assert heads.tier == 2 and heads.unseen == ()
    assert all(proof.passed for proof in heads.proofs)
    assert heads.n_heads == sum(heads.heads_per_layer.values()) > 0


def test_what_is_not_a_transformers_model_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="Linear"):
        Heads(nn.Linear(3, 3))


def test_a_model_whose_heads_change_nothing_is_refused() -> None:
    """Where no output changes, nothing can be proven about a head's slice."""
    model = tiny_model("bert")
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.output.dense.weight.zero_()
    _assert_maps_only(Heads(model), model)


def _assert_maps_only(heads: Heads, model: nn.Module) -> None:
    """Maps that were checked against their layers can still be had, but nothing is removed."""
    assert heads.tier == 3
    with (
        pytest.raises(UnsupportedModelError, match="too little|not shown"),
        heads.masked(HeadMask.removing([heads.index[0]], like=heads)),
    ):
        pass
    with pytest.raises(UnsupportedModelError):
        next(heads.gradients(sample_batches("bert"), lambda m, b: m(**b.inputs).logits.mean((1, 2))))
    maps = model.set_attn_implementation("eager") or model(**sample_batches("bert")[0].inputs, output_attentions=True)
    seen = heads.capture(sample_batches("bert")[0])
    for layer, attention in enumerate(maps.attentions):
        torch.testing.assert_close(seen["encoder", layer], attention.detach())


def test_heads_that_change_less_than_rounding_prove_nothing() -> None:
    """A gap of 1e-8 between two ways to remove heads says nothing if removing them changes outputs by 1e-7."""
    model = tiny_model("bert")
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.output.dense.weight.mul_(1e-7)
    _assert_maps_only(Heads(model), model)


def test_a_model_that_fails_on_the_probe_is_refused() -> None:
    """BART's classifier wants an end-of-sentence token and a decoder as long as the encoder."""
    model = type_of("BartForSequenceClassification", tiny_model("bart").config)
    with pytest.raises(UnsupportedModelError, match="probe") as refusal:
        Heads(model)
    assert "example" in refusal.value.remedy


def type_of(model_class: str, config) -> nn.Module:
    import transformers

    return getattr(transformers, model_class)(copy.deepcopy(config)).eval()


@pytest.mark.parametrize(
    ("model_class", "name", "kinds"),
    [
        ("BertForSequenceClassification", "bert", {"encoder"}),
        ("LlamaForSequenceClassification", "llama", {"decoder"}),
        ("T5EncoderModel", "t5", {"encoder"}),
        ("BartForCausalLM", "bart", {"decoder"}),
        ("BartModel", "bart", {"encoder", "decoder", "cross"}),
    ],
)
def test_other_classes_of_a_family(model_class: str, name: str, kinds: set[str]) -> None:
    heads = Heads(type_of(model_class, tiny_model(name).config))
    assert {kind for kind, _ in heads.heads_per_layer} == kinds
    assert heads.heads_per_layer == {(kind, layer): 4 for kind in kinds for layer in (0, 1)}
    assert heads.single_stack == (len(kinds) == 1)


class AttendsAfterItsBase(PreTrainedModel):
    """A class whose head attends once more: its base model alone does not show every layer."""

    config_class, base_model_prefix, _supports_sdpa = PlantedConfig, "base", True

    def __init__(self, base: nn.Module) -> None:
        super().__init__(base.config)
        self.base = base
        self.top = PlantedAttention(base.config, [everywhere, at_offset(0)])
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **_) -> BaseModelOutput:
        hidden = self.base(input_ids, attention_mask).last_hidden_state
        mask = torch.zeros(*input_ids.shape[:1], 1, 1, input_ids.shape[1])
        mask = mask.masked_fill(attention_mask[:, None, None] == 0, torch.finfo(torch.float32).min)
        return BaseModelOutput(last_hidden_state=self.top(hidden, input_ids, mask)[0])


def test_attention_after_the_base_model_is_seen() -> None:
    heads = Heads(AttendsAfterItsBase(planted([at_offset(-1), everywhere], causal=False)).eval())
    table = heads.observe(sample_batches("bert"))
    assert heads.n_heads == len(table) == 4
    assert table["self_mass"].iloc[3] == pytest.approx(1, abs=1e-6)
    assert (table["entropy_norm"].iloc[[1, 2]] > 0.999).all()


def test_every_proof_is_recorded() -> None:
    heads = Heads(tiny_model("t5"))
    assert len(heads.proofs) >= 3
    assert all(proof.passed and proof.name and proof.detail for proof in heads.proofs)


def observe_at_once(*pairs) -> list[pd.DataFrame]:
    """Each (heads, batches) in a thread of its own, all started together."""
    results: list = [None] * len(pairs)
    gate = threading.Barrier(len(pairs))

    def work(i: int, heads: Heads, batches: list) -> None:
        gate.wait()
        try:
            for _ in range(4):
                results[i] = heads.observe(batches, labels=["positional", "sink"])
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=work, args=(i, *pair)) for i, pair in enumerate(pairs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def test_two_models_at_once_are_as_one_after_the_other() -> None:
    pairs = [(Heads(tiny_model(name)), sample_batches(name) * 3) for name in ("bert", "llama")]
    expected = [heads.observe(batches, labels=["positional", "sink"]) for heads, batches in pairs]
    for found, table in zip(observe_at_once(*pairs), expected, strict=True):
        pd.testing.assert_frame_equal(found, table)


def test_two_models_with_one_configuration_object_at_once() -> None:
    """Models made from one config share it, and with it the name of the attention implementation."""
    first = tiny_model("llama")
    second = type(first)(first.config).eval()
    second.load_state_dict(tiny_model("llama", seed=9).state_dict())
    assert first.config is second.config
    implementation = first.config._attn_implementation
    pairs = [(Heads(model), sample_batches("llama") * 3) for model in (first, second)]
    expected = [heads.observe(batches, labels=["positional", "sink"]) for heads, batches in pairs]
    for found, table in zip(observe_at_once(*pairs), expected, strict=True):
        pd.testing.assert_frame_equal(found, table)
    assert first.config._attn_implementation == implementation


def test_a_model_can_be_used_while_another_with_its_configuration_is_observed() -> None:
    first = tiny_model("llama")
    second = type(first)(first.config).eval()
    heads = Heads(first)
    batch = sample_batches("llama")[0]
    with torch.no_grad():
        expected = second(**batch.inputs).logits
    seen = []

    def use_the_other(*_: object) -> None:
        with torch.no_grad():
            seen.append(second(**batch.inputs).logits)

    hook = first.model.layers[1].register_forward_hook(use_the_other)
    heads.observe([batch])
    hook.remove()
    assert torch.allclose(seen[0], expected, atol=1e-5)


def test_probing_a_model_while_another_with_its_configuration_is_observed() -> None:
    """The probe compares eager maps, under which the shared configuration says `eager`: no layer may go unseen."""
    first = tiny_model("llama")
    second = type(first)(first.config).eval()
    heads = Heads(first)
    batch = sample_batches("llama")[0]
    expected = heads.observe([batch])
    implementation = first.config._attn_implementation
    hook = first.model.layers[0].register_forward_hook(lambda *_: Heads(second) and None)
    try:
        pd.testing.assert_frame_equal(heads.observe([batch]), expected)
    finally:
        hook.remove()
    assert first.config._attn_implementation == implementation


def test_a_pass_that_leaves_layers_unseen_is_not_silent() -> None:
    """Whatever takes the attention away from headlab half way, the table must not be made of half of the layers."""
    model = tiny_model("llama")
    heads = Heads(model)
    batch = sample_batches("llama")[0]

    def take_away(*_: object) -> None:
        model.config._attn_implementation_internal = "sdpa"

    hook = model.model.layers[0].register_forward_hook(take_away)
    with pytest.raises(ProofError, match="layer 1"):
        heads.observe([batch, batch])
    hook.remove()
    assert len(heads.observe([batch])) == heads.n_heads


def test_a_second_observation_of_the_same_model_inside_the_first_is_refused() -> None:
    heads = Heads(tiny_model("llama"))
    batch = sample_batches("llama")[0]
    hook = heads.model.model.layers[1].register_forward_hook(lambda *_: heads.observe([batch]))
    with pytest.raises(RuntimeError, match="already being observed"):
        heads.observe([batch])
    hook.remove()
    assert len(heads.observe([batch])) == heads.n_heads


def test_masks_of_two_models_at_once() -> None:
    first, second = Heads(tiny_model("llama")), Heads(tiny_model("llama", seed=4))
    batch = sample_batches("llama")[0]
    one, other = HeadMask.removing("L0H0", like=first), HeadMask.removing("L1H3", like=second)
    with torch.no_grad():
        with first.masked(one):
            expected = first.model(**batch.inputs).logits
        with first.masked(one), second.masked(other):
            found = first.model(**batch.inputs).logits
            second.model(**batch.inputs)
    assert torch.equal(found, expected)


def test_a_name_or_a_tokenizers_output_in_the_wrong_place_is_named() -> None:
    with pytest.raises(UsageError, match="demo:minilm") as refusal:
        Heads("demo:minilm")
    assert "open_model" in refusal.value.remedy
    with pytest.raises(UsageError, match="dict"):
        Heads(tiny_model("bert")).capture({"input_ids": torch.ones(1, 3, dtype=torch.long)})
