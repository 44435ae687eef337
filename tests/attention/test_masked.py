"""Masked models against models whose output projections were changed by hand, and what is left behind."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from headlab.attention.heads import Heads
from headlab.base.errors import ProofError, UnsupportedModelError, UsageError
from headlab.base.masks import HeadMask
from tests.support.model_state import state_of
from tests.support.reference import (
    make_batch,
    output_of,
    projection_inputs,
    random_text,
    replace_slice,
    sample_batches,
    some_mask,
)
from tests.support.tiny_models import FAMILIES, projections, rows_of_head, tiny_model

ONE_CALL = [name for name, family in FAMILIES.items() if family.shared_calls == 1]


def without_rows(model: nn.Module, name: str, mask: HeadMask) -> nn.Module:
    """A copy in which the rows of the projection that read a removed head are zero."""
    twin = copy.deepcopy(model)
    places = projections(twin, name)
    with torch.no_grad():
        for kind, layer, head in mask.removed:
            module, _ = places[kind, layer]
            rows_of_head(twin, name, module, head).zero_()
    return twin


@pytest.mark.parametrize("name", ONE_CALL)
def test_masked_equals_zeroed_rows_of_the_projection(name: str) -> None:
    model = tiny_model(name)
    heads = Heads(model)
    mask = some_mask(heads)
    twin = without_rows(model, name, mask)
    for batch in (*sample_batches(name), *sample_batches(name, "left")):
        with heads.masked(mask):
            masked = output_of(model, batch)
        native, expected = output_of(model, batch), output_of(twin, batch)
        scale = max(1.0, expected.abs().max().item())
        assert (masked - expected).abs().max() < 1e-5 * scale
        assert (masked - native).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["bert", "t5", "qwen3_next"])
def test_each_head_alone(name: str) -> None:
    model = tiny_model(name)
    heads = Heads(model)
    batch = sample_batches(name)[0]
    native = output_of(model, batch)
    for head in heads.index:
        mask = HeadMask.removing([head], like=heads)
        with heads.masked(mask):
            masked = output_of(model, batch)
        assert (masked - output_of(without_rows(model, name, mask), batch)).abs().max() < 1e-5
        assert (masked - native).abs().max() > 1e-4


def test_shared_layers_are_masked_one_by_one() -> None:
    """ALBERT calls one module for all layers: a head removed in layer 1 still works in layer 0."""
    model = tiny_model("albert")
    heads = Heads(model)
    batch = sample_batches("albert")[0]
    module, _ = projections(model, "albert")["encoder", 0]
    for removed_calls in ([0], [1], [0, 1]):
        twin = copy.deepcopy(model)
        calls = iter(range(2))

        def hook(_, arguments, calls=calls, removed_calls=removed_calls):
            if next(calls) not in removed_calls:
                return None
            entering = arguments[0].clone()
            entering[..., 8:16] = 0
            return (entering,)

        projections(twin, "albert")["encoder", 0][0].register_forward_pre_hook(hook)
        expected = output_of(twin, batch)
        with heads.masked(HeadMask.removing([("encoder", call, 1) for call in removed_calls], like=heads)):
            assert (output_of(model, batch) - expected).abs().max() < 1e-5
            assert (output_of(model, batch) - expected).abs().max() < 1e-5  # the second pass counts from 0 again
    assert len(module._forward_pre_hooks) == 0


def test_shared_layers_after_a_pass_that_failed_half_way() -> None:
    model = tiny_model("albert")
    heads = Heads(model)
    batch = sample_batches("albert")[0]
    mask = HeadMask.removing("L1H1", like=heads)
    with heads.masked(mask):
        expected = output_of(model, batch)
    feed_forward = model.albert.encoder.albert_layer_groups[0].albert_layers[0].ffn
    with heads.masked(mask):
        failing = feed_forward.register_forward_pre_hook(raise_boom)
        with pytest.raises(RuntimeError, match="boom"):
            output_of(model, batch)
        failing.remove()
        assert torch.equal(output_of(model, batch), expected)


def raise_boom(*_: object) -> None:
    raise RuntimeError("boom")


@pytest.mark.parametrize("name", ONE_CALL)
def test_mean_ablation_replaces_a_head_by_its_mean(name: str) -> None:
    model = tiny_model(name)
    heads = Heads(model)
    batches = sample_batches(name)
    means = heads.mean_outputs(batches)
    expected_means = {}
    for key in heads.heads_per_layer:
        rows = []
        for batch in batches:
            tokens = batch.source if key[0] == "encoder" or batch.target is None else batch.target
            entering = projection_inputs(model, batch, name)[key].reshape(*tokens.ids.shape, -1)
            rows.append(entering[tokens.valid])
        expected_means[key] = torch.cat(rows).double().mean(0).view(4, -1)
        assert (means[key].double() - expected_means[key]).abs().max() < 1e-5
    mask = some_mask(heads)
    twin = copy.deepcopy(model)
    places = projections(twin, name)
    for kind, layer, head in mask.removed:
        places[kind, layer][0].register_forward_pre_hook(replace_slice(head, expected_means[kind, layer][head].float()))
    with heads.masked(mask, "mean", means):
        masked = output_of(model, batches[0])
    expected = output_of(twin, batches[0])
    assert (masked - expected).abs().max() < 1e-5 * max(1.0, expected.abs().max().item())
    with heads.masked(mask):
        assert (output_of(model, batches[0]) - masked).abs().max() > 1e-3


def test_zero_ablation_stays_zero_where_means_are_passed_too() -> None:
    model = tiny_model("bert")
    heads, batches = Heads(model), sample_batches("bert")
    mask, means = some_mask(heads), heads.mean_outputs(batches)
    with heads.masked(mask):
        zero = output_of(model, batches[0])
    with heads.masked(mask, "zero", means):
        assert torch.equal(output_of(model, batches[0]), zero)


def test_the_projections_bias_stays() -> None:
    """With every head of a layer removed the attention output is the bias, not zero."""
    model = tiny_model("bert")
    heads = Heads(model)
    dense = model.bert.encoder.layer[0].attention.output.dense
    seen = []
    hook = dense.register_forward_hook(lambda m, args, output: seen.append(output))
    with heads.masked(HeadMask.removing({0: range(4)}, like=heads)):
        output_of(model, sample_batches("bert")[0])
    hook.remove()
    assert dense.bias.abs().max() > 0.05
    assert torch.equal(seen[0], dense.bias.expand_as(seen[0]))


# ---- the model is left as it was found


def every_use(heads: Heads, name: str) -> None:
    batches = sample_batches(name)
    mask = some_mask(heads)
    heads.observe(batches, labels=["positional", "sink"])
    means = heads.mean_outputs(batches)
    heads.capture(batches[0])
    with torch.random.fork_rng():  # in training mode the model itself draws dropout
        with heads.masked(mask):
            output_of(heads.model, batches[0])
        with heads.masked(mask, "mean", means):
            output_of(heads.model, batches[0])
    list(heads.gradients(batches, lambda model, batch: model(**batch.inputs).logits.flatten(1).sum(1)))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_model_is_left_as_found(name: str) -> None:
    model = tiny_model(name)
    for i, (_, parameter) in enumerate(model.named_parameters()):
        parameter.requires_grad_(i % 3 != 0)
    for i, module in enumerate(model.modules()):
        module.training = i % 2 == 0
    places = projections(model, name)
    hook = next(iter(places.values()))[0].register_forward_pre_hook(lambda m, args: (args[0] * 1.01,))
    let_transformers_install_its_hooks(model, name)
    before = state_of(model)
    every_use(Heads(model), name)
    after = state_of(model)
    assert [part for part in before if before[part] != after[part]] == []
    hook.remove()
    model.eval()
    assert torch.equal(output_of(model, sample_batches(name)[0]), output_of(tiny_model(name), sample_batches(name)[0]))


def let_transformers_install_its_hooks(model: nn.Module, name: str) -> None:
    """Transformers installs hooks of its own, for good, the first time that a model is asked for its maps."""
    with torch.random.fork_rng(), torch.no_grad():
        model(**sample_batches(name)[0].inputs, output_attentions=True)


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_a_fresh_model_keeps_no_hooks(name: str) -> None:
    model = tiny_model(name)
    before = state_of(model)
    every_use(Heads(model), name)
    after = state_of(model)
    assert [part for part in before if before[part] != after[part]] == []


@pytest.mark.parametrize("name", ["bert", "albert", "llama", "t5"])
def test_the_model_is_left_as_found_after_an_exception(name: str) -> None:
    model = tiny_model(name)
    heads = Heads(model)
    batch = sample_batches(name)[0]
    table = heads.observe([batch])
    before = state_of(model)
    with pytest.raises(RuntimeError, match="boom"), heads.masked(some_mask(heads)):
        output_of(model, batch)
        raise RuntimeError("boom")
    module = list(projections(model, name).values())[-1][0]
    failing = module.register_forward_hook(raise_boom)
    for use in (
        lambda: heads.observe([batch]),
        lambda: heads.capture(batch),
        lambda: heads.mean_outputs([batch]),
        lambda: list(heads.gradients([batch], lambda m, b: m(**b.inputs).logits.flatten(1).sum(1))),
        lambda: Heads(model),
    ):
        with pytest.raises((RuntimeError, UnsupportedModelError), match="boom"):
            use()
    failing.remove()
    after = state_of(model)
    assert [part for part in before if before[part] != after[part]] == []
    assert table.equals(heads.observe([batch]))


def test_an_exception_from_a_mask_is_the_users_own() -> None:
    """Leaving by an exception must not be replaced by a complaint about layers that were not reached."""
    model = tiny_model("bert")
    heads = Heads(model)
    with pytest.raises(KeyError, match="mine"), heads.masked(some_mask(heads)):
        model.bert.embeddings(torch.ones(1, 3, dtype=torch.long))
        raise KeyError("mine")


@pytest.mark.parametrize("name", ["bert", "llama", "bart"])
def test_a_foreign_hook_on_the_projection(name: str) -> None:
    """Hooks of others on the projection keep working, before and after, and see what they would see without headlab."""
    model = tiny_model(name)
    kind, layer = next(iter(projections(model, name)))
    module = projections(model, name)[kind, layer][0]
    module.register_forward_pre_hook(lambda m, args: (args[0] * 1.5,))
    module.register_forward_hook(lambda m, args, output: output + 0.25)
    heads = Heads(model)
    mask = some_mask(heads)
    batch = sample_batches(name)[0]
    twin = without_rows(model, name, mask)
    assert len(projections(twin, name)[kind, layer][0]._forward_pre_hooks) == 1
    with heads.masked(mask):
        masked = output_of(model, batch)
    assert (masked - output_of(twin, batch)).abs().max() < 1e-5 * max(1.0, masked.abs().max().item())
    assert len(module._forward_pre_hooks) == 1 and len(module._forward_hooks) == 1


def test_in_train_mode_dropout_stays_what_it_was() -> None:
    model = tiny_model("bert")
    heads = Heads(model)
    mask = some_mask(heads)
    twin = without_rows(model, "bert", mask)
    batch = sample_batches("bert")[0]
    model.train()
    twin.train()
    torch.manual_seed(3)
    expected = output_of(twin, batch)
    torch.manual_seed(3)
    with heads.masked(mask):
        assert all(module.training for module in model.modules())
        masked = output_of(model, batch)
    assert (masked - expected).abs().max() < 1e-5 * max(1.0, expected.abs().max().item())
    assert (masked - output_of(model.eval(), batch)).abs().max() > 1e-2


def test_observing_in_train_mode_gives_the_table_without_dropout() -> None:
    model = tiny_model("bert")
    batches = sample_batches("bert")
    expected = Heads(model).observe(batches)
    model.train()
    assert expected.equals(Heads(model).observe(batches))
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("name", ["llama", "albert"])
def test_nested_masks_remove_the_heads_of_both(name: str) -> None:
    model = tiny_model(name)
    heads = Heads(model)
    batch = sample_batches(name)[0]
    first = HeadMask.removing("L0H1,L1H3", like=heads)
    second = HeadMask.removing("L0H2,L1H0", like=heads)
    with heads.masked(first & second):
        expected = output_of(model, batch)
    with heads.masked(first):
        only_first = output_of(model, batch)
        with heads.masked(second):
            both = output_of(model, batch)
        assert torch.equal(output_of(model, batch), only_first)
    assert torch.allclose(both, expected, atol=1e-6)
    assert not torch.allclose(both, only_first, atol=1e-3)


def test_observing_a_masked_model_sees_the_masked_model() -> None:
    model = tiny_model("llama")
    heads = Heads(model)
    mask = HeadMask.removing("L0H1,L0H2", like=heads)
    batches = sample_batches("llama")
    with heads.masked(mask):
        inside = heads.observe(batches)
    twin = Heads(without_rows(model, "llama", mask)).observe(batches)
    columns = [c for c in twin if not c.startswith("output_norm")]
    assert (inside[columns] - twin[columns]).abs().max(axis=None) < 1e-5
    assert inside.loc[("decoder", 0, 1), "output_norm"] == 0
    assert inside.loc[("decoder", 1, 1), "output_norm"] > 0


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_inference_mode(where: str) -> None:
    model = tiny_model("llama")
    heads = Heads(model)
    batch = sample_batches("llama")[0]
    mask, means = some_mask(heads), heads.mean_outputs([batch])
    with heads.masked(mask):
        zero = output_of(model, batch)
    with heads.masked(mask, "mean", means):
        mean = output_of(model, batch)
    for expected, arguments in ((zero, ()), (mean, ("mean", means))):
        if where == "outside":
            with torch.inference_mode(), heads.masked(mask, *arguments):
                found = output_of(model, batch)
        else:
            with heads.masked(mask, *arguments), torch.inference_mode():
                found = output_of(model, batch)
        assert torch.equal(found, expected)


def test_probe_and_gradients_inside_inference_mode() -> None:
    model = tiny_model("llama")
    batches = sample_batches("llama")

    def loss(model, batch):
        return model(**batch.inputs).logits.square().mean((1, 2))

    heads = Heads(model)
    expected = list(heads.gradients(batches, loss))
    with torch.inference_mode():
        inside = Heads(model)
        assert inside.observe(batches).equals(heads.observe(batches))
        found = list(inside.gradients(batches, loss))
    assert all((a == b).all() for a, b in zip(expected, found, strict=True))


def test_generation_under_a_mask() -> None:
    model = tiny_model("llama")
    heads = Heads(model)
    mask = some_mask(heads)
    ids = make_batch([random_text(6, 3, separators=False)]).inputs
    twin = without_rows(model, "llama", mask)
    with heads.masked(mask):
        masked = model.generate(**ids, max_new_tokens=8, do_sample=False)
    assert torch.equal(masked, twin.generate(**ids, max_new_tokens=8, do_sample=False))
    assert not torch.equal(masked, model.generate(**ids, max_new_tokens=8, do_sample=False))


# ---- what is refused


def test_a_mask_of_another_model_is_refused() -> None:
    heads, other = Heads(tiny_model("bert")), Heads(tiny_model("bert", num_hidden_layers=3))
    decoder = Heads(tiny_model("llama"))
    for foreign in (other, decoder):
        with pytest.raises(UsageError, match="another model"), heads.masked(HeadMask.full(foreign)):
            pass


def test_unknown_ablation_and_missing_means() -> None:
    heads = Heads(tiny_model("bert"))
    mask = some_mask(heads)
    with pytest.raises(UsageError, match="zero"), heads.masked(mask, "zeros"):
        pass
    with pytest.raises(UsageError, match="mean_outputs"), heads.masked(mask, "mean"):
        pass


def test_a_mask_that_was_not_applied_is_not_silent() -> None:
    """Where the forward pass never reaches the masked projection, the result does not count."""
    model = tiny_model("bert")
    heads = Heads(model)
    layer = model.bert.encoder.layer[1].attention.output
    before = layer.dense
    with pytest.raises(ProofError, match="layer 1"), heads.masked(HeadMask.removing("L1H0", like=heads)):
        layer.dense = copy.deepcopy(before)
        for hook in list(layer.dense._forward_pre_hooks):
            del layer.dense._forward_pre_hooks[hook]
        output_of(model, sample_batches("bert")[0])
    layer.dense = before
