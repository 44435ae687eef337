"""Somebody's own module, its attention sites named: what works, what is proven, what is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import headlab
from headlab import DeclaredSite, HeadMask, Heads
from headlab.base.errors import HeadlabError, ProofError, UnsupportedModelError, UsageError
from headlab.models.texts.batch import Batch
from tests.support.model_state import state_of
from tests.support.own_modules import HEADS, WIDTH, OwnEncoder, OwnTranslator, encoder_batch, seeded, tokens

LENGTHS = (9, 6, 4)


def sites(seen: bool = True, n_heads: int = HEADS, layers: int = 2) -> list[DeclaredSite]:
    return [
        DeclaredSite("encoder", i, n_heads, f"layers.{i}.out", f"layers.{i}.weights" if seen else None)
        for i in range(layers)
    ]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return seeded(OwnEncoder)


@pytest.fixture(scope="module")
def heads(model: nn.Module) -> Heads:
    return Heads(model, sites(), example=encoder_batch(*LENGTHS))


def attention_by_hook(model: nn.Module, batch: Batch, name: str) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    hook = model.get_submodule(name).register_forward_hook(lambda m, a, output: seen.append(output))
    with torch.no_grad():
        model(**batch.inputs)
    hook.remove()
    return seen[0]


def without_rows(model: nn.Module, removed: dict[str, list[int]]) -> nn.Module:
    """A copy with the rows of the projection that read these heads zeroed."""
    twin = copy.deepcopy(model)
    width = WIDTH // HEADS
    for name, gone in removed.items():
        for head in gone:
            with torch.no_grad():
                twin.get_submodule(name).weight[:, head * width : (head + 1) * width] = 0
    return twin


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    valid = batch.inputs["valid"]
    return (model(**batch.inputs).square().mean(-1) * valid).sum(-1)


def test_declared_sites_are_public() -> None:
    assert headlab.DeclaredSite is DeclaredSite and {"DeclaredSite", "Batch", "Tokens"} <= set(headlab.__all__)


def test_it_is_not_found_without_a_declaration(model: nn.Module) -> None:
    with pytest.raises(UnsupportedModelError, match="no softmax attention") as refusal:
        Heads(model, example=encoder_batch(*LENGTHS))
    assert "DeclaredSite" in refusal.value.remedy


def test_what_is_proven(heads: Heads) -> None:
    assert heads.heads_per_layer == {("encoder", 0): HEADS, ("encoder", 1): HEADS}
    names = " ".join(proof.name for proof in heads.proofs)
    assert all(proof.passed for proof in heads.proofs)
    for part in ("reached", "equal the model's own", "changes outputs", "gating a head at the attention"):
        assert part in names


def test_statistics_are_those_of_the_weights(heads: Heads, model: nn.Module) -> None:
    batch = encoder_batch(*LENGTHS, seed=3)
    table = heads.observe([batch], labels=["positional", "sink"])
    for layer in range(2):
        attention = attention_by_hook(model, batch, f"layers.{layer}.weights")
        rows = batch.source.valid
        for head in range(HEADS):
            a = attention[:, head].double()
            entropy = -(a * a.clamp_min(1e-30).log()).sum(-1)[rows].mean()
            row = table.loc[("encoder", layer, head)]
            assert row["entropy"] == pytest.approx(entropy.item(), abs=1e-5)
            assert row["self_mass"] == pytest.approx(a.diagonal(dim1=1, dim2=2)[rows].mean().item(), abs=1e-5)
            assert row["first_mass"] == pytest.approx(a[:, :, 0][rows].mean().item(), abs=1e-5)
        torch.testing.assert_close(heads.capture(batch)["encoder", layer], attention)


def test_output_norms_are_those_of_the_slices(heads: Heads, model: nn.Module) -> None:
    batch = encoder_batch(*LENGTHS, seed=3)
    entering: list[torch.Tensor] = []
    hook = model.layers[1].out.register_forward_pre_hook(lambda m, a: entering.append(a[0]))
    table = heads.observe([batch])
    hook.remove()
    weight = model.layers[1].out.weight.T.view(HEADS, WIDTH // HEADS, WIDTH)
    norms = torch.einsum("bthd,hdm->bthm", entering[0].unflatten(-1, (HEADS, -1)), weight).norm(dim=-1)
    expected = norms[batch.source.valid].mean(0).detach().numpy()
    np.testing.assert_allclose(table.loc[("encoder", 1), "output_norm"], expected, rtol=1e-4)


@pytest.mark.parametrize("seen", [True, False])
def test_masks_are_rows_of_the_projection_zeroed(model: nn.Module, seen: bool) -> None:
    heads = Heads(model, sites(seen), example=encoder_batch(*LENGTHS))
    batch = encoder_batch(7, 5, seed=5)
    before = found_state_of(model)
    with torch.no_grad():
        with heads.masked(HeadMask.removing("L0H1,L0H2,L1H3", like=heads)):
            masked = model(**batch.inputs)
        expected = without_rows(model, {"layers.0.out": [1, 2], "layers.1.out": [3]})(**batch.inputs)
    torch.testing.assert_close(masked, expected)
    assert found_state_of(model) == before


def found_state_of(model: nn.Module) -> dict:
    return {key: value for key, value in state_of(model).items() if key != "random"}


@pytest.mark.parametrize("tokens_first", [True, False])
@pytest.mark.parametrize("seen", [True, False])
def test_gradients_are_slopes_of_each_text(seen: bool, tokens_first: bool) -> None:
    model = seeded(OwnEncoder, tokens_first=tokens_first)
    heads = Heads(model, sites(seen), example=encoder_batch(*LENGTHS))
    batch = encoder_batch(*LENGTHS, seed=2)
    slopes = next(heads.gradients([batch], loss))
    step = 1e-3
    width = WIDTH // HEADS
    for column, (_, layer, head) in enumerate(heads.index):
        losses = []
        for factor in (1 + step, 1 - step):
            twin = copy.deepcopy(model).double()
            with torch.no_grad():
                twin.get_submodule(f"layers.{layer}.out").weight[:, head * width : (head + 1) * width] *= factor
                losses.append(loss(twin, batch).numpy())
        np.testing.assert_allclose(slopes[:, column], (losses[0] - losses[1]) / (2 * step), rtol=1e-3, atol=1e-4)


def test_mean_ablation(heads: Heads, model: nn.Module) -> None:
    batch = encoder_batch(*LENGTHS)
    means = heads.mean_outputs([batch])
    entering: list[torch.Tensor] = []
    hook = model.layers[0].out.register_forward_pre_hook(lambda m, a: entering.append(a[0]))
    with torch.no_grad(), heads.masked(HeadMask.removing("L0H0", like=heads), "mean", means):
        model(**batch.inputs)
    hook.remove()
    expected = attention_mean(model, batch)
    torch.testing.assert_close(means["encoder", 0].flatten(), expected)


def attention_mean(model: nn.Module, batch: Batch) -> torch.Tensor:
    entering: list[torch.Tensor] = []
    hook = model.layers[0].out.register_forward_pre_hook(lambda m, a: entering.append(a[0]))
    with torch.no_grad():
        model(**batch.inputs)
    hook.remove()
    return entering[0][batch.source.valid].mean(0)


def test_without_weights_there_are_no_statistics(model: nn.Module) -> None:
    heads = Heads(model, sites(seen=False), example=encoder_batch(*LENGTHS))
    assert "is as declared" in heads.proofs[0].detail
    batch = encoder_batch(*LENGTHS)
    with pytest.raises(UnsupportedModelError, match="without weights"):
        heads.observe([batch])
    with pytest.raises(UnsupportedModelError, match="layer 0 was declared without weights"):
        heads.capture(batch)


def test_some_layers_without_weights(model: nn.Module) -> None:
    mixed = [sites()[0], sites(seen=False)[1]]
    heads = Heads(model, mixed, example=encoder_batch(*LENGTHS))
    batch = encoder_batch(*LENGTHS)
    table = heads.observe([batch], labels=["positional", "sink"])
    assert table.loc[("encoder", 0), "entropy"].notna().all() and table.loc[("encoder", 1), "entropy"].isna().all()
    assert table["output_norm"].notna().all()
    assert set(heads.capture(batch, layers=[0])) == {("encoder", 0)}
    with pytest.raises(UnsupportedModelError, match="layer 1"):
        heads.capture(batch)


def test_three_kinds() -> None:
    model = seeded(OwnTranslator)
    source, target = tokens(9, 6, 4), tokens(7, 7, 3, seed=1)
    inputs = {"source": source.ids, "source_valid": source.valid, "target": target.ids, "target_valid": target.valid}
    batch = Batch(inputs, source, target, examples=(0, 1, 2))
    declared = [
        DeclaredSite(kind, 0, HEADS, f"{name}.out", f"{name}.weights")
        for kind, name in (("cross", "cross"), ("decoder", "decoder"), ("encoder", "encoder"))
    ]
    heads = Heads(model, declared, example=batch)
    assert list(heads.heads_per_layer) == [("encoder", 0), ("decoder", 0), ("cross", 0)]
    table = heads.observe([batch])
    assert {site.kind: site.causal for site in heads.sites}["decoder"]
    assert table.loc["cross"]["prev_mass"].isna().all() and (table.loc["decoder"]["next_mass"].fillna(0) == 0).all()
    with torch.no_grad(), heads.masked(HeadMask.removing("X0H1,D0H2", like=heads)):
        masked = model(**inputs)
    expected = without_rows(model, {"cross.out": [1], "decoder.out": [2]})(**inputs)
    torch.testing.assert_close(masked, expected)


def test_one_module_for_two_layers() -> None:
    model = seeded(OwnEncoder)
    model.layers = nn.ModuleList([model.layers[0]] * 2)
    declared = [DeclaredSite("encoder", i, HEADS, "layers.0.out", "layers.0.weights", call=i) for i in range(2)]
    batch = encoder_batch(*LENGTHS)
    heads = Heads(model, declared, example=batch)
    maps = heads.capture(batch)
    assert not torch.allclose(maps["encoder", 0], maps["encoder", 1])
    width = WIDTH // HEADS

    def second_call_only(module: nn.Module, arguments: tuple) -> tuple:
        second_call_only.calls += 1
        entering = arguments[0].clone()
        if second_call_only.calls == 2:
            entering[..., width : 2 * width] = 0
        return (entering,)

    second_call_only.calls = 0
    with torch.no_grad(), heads.masked(HeadMask.removing("L1H1", like=heads)):
        masked = model(**batch.inputs)
    hook = model.layers[0].out.register_forward_pre_hook(second_call_only)
    torch.testing.assert_close(masked, model(**batch.inputs))
    hook.remove()


# ---- declarations that are wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "encodr"}, "encodr"),
        ({"projection": "layers.0.ot"}, "Did you mean 'layers.0.out'"),
        ({"weights": "layer.0.weights"}, "Did you mean 'layers.0.weights'"),
        ({"projection": "unused"}, "is called 0 times"),
        ({"call": 1}, "is called 1 times"),
        ({"n_heads": 3}, "3 heads do not divide the 16"),
        ({"n_heads": 0}, "0 heads"),
        ({"n_heads": 8}, "attention of this layer is \\(3, 8, 9, 9\\)"),
        ({"weights": "layers.0.query"}, "attention of this layer is"),
        ({"weights": "layers.0.scores"}, "is no attention: its rows sum to"),
        ({"weights": "layers.1.weights"}, "not shown that gating"),
        ({"projection": "layers.0.weights"}, "gets the shape"),
        ({"projection": "layers.1.out"}, "same projection"),
    ],
)
def test_wrong_declarations_are_refused(model: nn.Module, change: dict, message: str) -> None:
    first, second = sites()
    wrong = DeclaredSite(**{**vars(first), **change})
    with pytest.raises(HeadlabError, match=message) as refusal:
        Heads(model, [wrong, second], example=encoder_batch(*LENGTHS))
    assert refusal.value.remedy or "Did you mean" in refusal.value.cause


def test_swapped_weights_are_refused(model: nn.Module) -> None:
    """Each layer with the other's weights: everything fits but the proof that gates agree."""
    swapped = [DeclaredSite("encoder", i, HEADS, f"layers.{i}.out", f"layers.{1 - i}.weights") for i in range(2)]
    with pytest.raises(UnsupportedModelError, match="gating a head"):
        Heads(model, swapped, example=encoder_batch(*LENGTHS))


def test_a_projection_beside_the_heads_is_refused(model: nn.Module) -> None:
    """As wide as the heads, but no heads enter it."""
    wrong = [DeclaredSite("encoder", 0, HEADS, "layers.0.query", "layers.0.weights"), sites()[1]]
    with pytest.raises(UnsupportedModelError, match="gating a head"):
        Heads(model, wrong, example=encoder_batch(*LENGTHS))


def test_a_layer_that_changes_nothing_is_refused(model: nn.Module) -> None:
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.layers[1].out.weight.zero_()
    with pytest.raises(UnsupportedModelError, match="removing the heads of a layer changes outputs"):
        Heads(twin, sites(seen=False), example=encoder_batch(*LENGTHS))


def test_no_sites_and_no_example_are_refused(model: nn.Module) -> None:
    with pytest.raises(UsageError, match="empty"):
        Heads(model, [], example=encoder_batch(*LENGTHS))
    with pytest.raises(UnsupportedModelError, match="not a transformers model") as refusal:
        Heads(model, sites())
    assert "example=" in refusal.value.remedy


def test_an_example_as_long_as_it_is_wide_is_refused(model: nn.Module) -> None:
    with pytest.raises(UsageError, match="cannot be told apart"):
        Heads(model, sites(), example=encoder_batch(3, 3, 2))


def test_an_example_the_forward_does_not_take_is_refused(model: nn.Module) -> None:
    batch = encoder_batch(*LENGTHS)
    other = Batch({"input_ids": batch.source.ids}, batch.source)
    with pytest.raises(UnsupportedModelError, match="fails on the probe"):
        Heads(model, sites(), example=other)


def test_a_mask_that_is_not_reached_is_an_error(heads: Heads, model: nn.Module) -> None:
    class Skips(nn.Module):
        def forward(self, x, memory, valid):
            return x

    layer = model.layers[1]
    with pytest.raises(ProofError, match="layer 1 was not reached"):
        try:
            with heads.masked(HeadMask.removing("L1H0", like=heads)):
                model.layers[1] = Skips()
                model(**encoder_batch(*LENGTHS).inputs)
        finally:
            model.layers[1] = layer


def test_labels_that_bring_texts_need_a_configuration(heads: Heads) -> None:
    with pytest.raises(UnsupportedModelError, match="brings its own texts"):
        heads.observe([encoder_batch(*LENGTHS)], labels=["induction"])
