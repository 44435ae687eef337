"""Scores against slow computations of the same definitions: hooks of our own, eager maps, named weights."""

from __future__ import annotations

import copy
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from headlab.attention.change.output_gradients import output_slopes
from headlab.attention.change.relevance import relevance_rules
from headlab.attention.heads import Heads
from headlab.base.errors import UnsupportedModelError
from headlab.base.masks import HeadMask
from headlab.scores import matched_random, score, standard_errors
from tests.support.reference import eager_maps, head_norms
from tests.support.tiny_models import projections, tiny_model
from tests.support.tiny_tasks import SHAPES, TinyTask, tiny

FAMILY = {"decoder": "llama", "classifier": "bert", "encoder-decoder": "bart"}


@pytest.fixture(params=SHAPES)
def judged(request):
    return FAMILY[request.param], *tiny(request.param)


def places_of(model: nn.Module, family: str) -> dict:
    """Projections by (kind, layer), by module names."""
    found = projections(model, family)
    return {key: module for key, (module, _) in found.items()}


def losses_of(task, model, split: str = "select") -> np.ndarray:
    with torch.no_grad():
        return torch.cat([task.losses(model, batch) for batch in task.batches(split)]).double().numpy()


def zeroed(model: nn.Module, family: str, heads) -> nn.Module:
    """A copy whose projections do not read these heads."""
    twin = copy.deepcopy(model)
    places = places_of(twin, family)
    with torch.no_grad():
        for kind, layer, head in heads:
            weight = places[kind, layer].weight
            width = weight.shape[1] // 4
            weight[:, head * width : (head + 1) * width] = 0
    return twin


# ---- leaving out


def test_ablation_and_its_error_are_those_of_edited_weights(judged):
    family, heads, task = judged
    found = score("ablation", heads, task)
    whole = losses_of(task, heads.model)
    for head in heads.index:
        rise = losses_of(task, zeroed(heads.model, family, [head])) - whole
        assert found[head] == pytest.approx(rise.mean(), abs=1e-5)
        assert standard_errors(found)[head] == pytest.approx(rise.std(ddof=1) / len(rise) ** 0.5, abs=1e-5)
    assert found.abs().max() > 0.01


def test_greedy_ablation_is_greedy(judged):
    family, heads, task = judged
    steps = score("greedy_ablation", heads, task)
    order = list(steps.sort_values().index)
    gone: list = []
    for head in order[:3]:
        left = [other for other in heads.index if other not in gone]
        losses = [losses_of(task, zeroed(heads.model, family, [*gone, other])).mean() for other in left]
        assert losses[left.index(head)] == pytest.approx(min(losses), abs=1e-5)
        gone.append(head)
    assert sorted(steps) == list(range(1, len(steps) + 1))


def test_no_set_of_heads_is_run_twice(judged):
    _, heads, task = judged
    n, batches = len(heads.index), 2
    task.passes = 0
    score("greedy_ablation", heads, task)
    assert task.passes == batches * n * (n + 1) / 2
    task.passes = 0
    score("gradient", heads, task)
    assert task.passes == batches


# ---- gradients


def test_per_token_is_the_sum_of_sizes_over_real_tokens(judged):
    per_token_is_the_sum_of_sizes(*judged)


def test_per_token_in_a_decoder_whose_layers_alternate_between_two_kinds_of_attention():
    """A pass calls decoder 0, cross 0, decoder 1, cross 1; tables have all of the decoder before all of cross."""
    model = tiny_model("bart", encoder_layers=1, decoder_layers=2)
    heads, task = Heads(model), TinyTask(model)
    batch = next(iter(task.batches("select")))
    assert list(output_slopes(heads.subject, batch, task.losses)) == [site.key for site in heads.sites]
    per_token_is_the_sum_of_sizes("bart", heads, task)


def per_token_is_the_sum_of_sizes(family: str, heads: Heads, task: TinyTask) -> None:
    twin = copy.deepcopy(heads.model)
    places, total, count = places_of(twin, family), {}, {}
    for batch in task.batches("select"):
        kept = {}
        hooks = [
            module.register_forward_pre_hook(lambda m, args, key=key, kept=kept: keep(args[0], key, kept))
            for key, module in places.items()
        ]
        task.losses(twin, batch).sum().backward()
        for hook in hooks:
            hook.remove()
        for key, entering in kept.items():
            tokens = batch.target if batch.target is not None and key[0] != "encoder" else batch.source
            size = (entering * entering.grad).detach().reshape(*tokens.ids.shape, 4, -1).sum(-1).abs()
            total[key] = total.get(key, 0) + size[tokens.valid].sum(0)
            count[key] = count.get(key, 0) + int(tokens.valid.sum())
    found = score("gradient:per-token", heads, task)
    for kind, layer, head in heads.index:
        expected = (total[kind, layer][head] / count[kind, layer]).item()
        assert found[kind, layer, head] == pytest.approx(expected, rel=1e-4, abs=1e-8)
    assert found.abs().max() > 1e-3


def keep(entering: torch.Tensor, key: tuple, kept: dict) -> None:
    entering.retain_grad()
    kept[key] = entering


def test_layer_normalised_has_unit_length_in_each_layer(judged):
    _, heads, task = judged
    raw, found = (score(name, heads, task) for name in ("gradient", "gradient:layer-normalised"))
    lengths = (found**2).groupby(level=["kind", "layer"]).sum()
    assert np.allclose(lengths, 1)
    ratio = (raw / found).groupby(level=["kind", "layer"])
    assert np.allclose(ratio.max(), ratio.min())


def test_iterated_gradients_are_those_of_the_model_without_the_removed_heads(judged):
    family, heads, task = judged
    steps = score("gradient_iterated:every-head", heads, task)
    order = list(steps.sort_values().index)
    twin = zeroed(heads.model, family, order[:4])
    again = Heads(twin)
    sizes = np.abs(np.concatenate(list(again.gradients(task.batches("select"), task.losses)))).mean(0)
    left = pd.Series(sizes, index=heads.index).drop(order[:4])
    assert left[order[4]] == pytest.approx(left.min(), rel=1e-4)
    assert sorted(steps) == list(range(1, len(steps) + 1))
    mask = HeadMask.removing(order[:4], like=heads)
    at = np.abs(np.concatenate(list(heads.gradients(task.batches("select"), task.losses, at=mask)))).mean(0)
    found = pd.Series(at, index=heads.index).drop(order[:4])
    assert np.allclose(found, left, rtol=1e-3, atol=1e-6)


def test_a_loss_without_gradients_is_refused():
    heads, task = tiny("classifier")
    task.losses = lambda model, batch: model(**batch.inputs).logits.detach().sum(-1)
    for name in ("gradient", "fisher", "gradient_iterated", "lrp", "attattr", "gradient:per-token"):
        with pytest.raises(UnsupportedModelError, match="no gradient"):
            score(name, heads, task)


def test_a_frozen_model_has_gradients_all_the_same():
    heads, task = tiny("classifier")
    expected = score("gradient", heads, task)
    heads.model.requires_grad_(False)
    pd.testing.assert_series_equal(score("gradient", heads, task), expected)
    assert not any(parameter.requires_grad for parameter in heads.model.parameters())


def test_gradient_is_michels_product_of_output_and_slope(judged):
    """|sum of Att_h . dL/dAtt_h over the tokens of an example|, and its finite difference."""
    family, heads, task = judged
    expected = []
    for batch in task.batches("select"):
        found = output_slopes(heads.subject, batch, task.losses)
        valid = {key: (batch.target if batch.target and key[0] != "encoder" else batch.source).valid for key in found}
        expected.append(
            torch.cat([((z * s).sum(-1) * valid[key][..., None]).sum(1) for key, (z, s) in found.items()], 1)
        )
    products = torch.cat(expected)  # (examples, heads)
    np.testing.assert_allclose(score("gradient", heads, task), products.abs().mean(0), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(score("gradient_signed", heads, task), -products.mean(0), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(score("fisher", heads, task), products.square().mean(0), rtol=1e-3, atol=1e-6)


def test_a_model_of_which_only_maps_are_known_has_no_importance():
    heads, task = tiny("classifier")
    with torch.no_grad():
        for layer in heads.model.bert.encoder.layer:
            layer.attention.output.dense.weight.zero_()
    blind = Heads(heads.model)
    assert blind.tier == 3
    for name in (
        "gradient",
        "gradient:per-token",
        "ablation",
        "shapley",
        "greedy_ablation",
        "lrp",
        "attattr",
        "fisher",
    ):
        with pytest.raises(UnsupportedModelError, match="cannot be"):
            score(name, blind, task)
    assert np.isfinite(score("confidence", blind, task)).all()


@pytest.mark.parametrize("name", ["gradient", "gradient:per-token", "shapley", "confidence", "lrp", "fisher"])
def test_batches_are_let_go_of(name):
    """However many texts there are, no more than three batches live at a time."""
    heads, task = tiny("classifier", n=24, batch_size=2)
    alive: weakref.WeakSet = weakref.WeakSet()
    most = 0
    plain = task.batch

    def counted(ids):
        nonlocal most
        made = plain(ids)
        alive.add(made.source)
        most = max(most, len(alive))
        return made

    task.batch = counted
    score(name, heads, task, **({"permutations": 2, "exact": False} if name == "shapley" else {}))
    assert most <= 3


# ---- weights, attention, outputs


def fused(weight: torch.Tensor) -> torch.Tensor:
    """The values' rows of a matrix that makes query, key and value of one head after another."""
    return weight.view(4, 3, 8, 32)[:, 2].reshape(32, 32)


VALUES = {
    "bert": lambda m, i: m.base_model.encoder.layer[i].attention.self.value.weight,
    "llama": lambda m, i: m.model.layers[i].self_attn.v_proj.weight,
    "gpt2": lambda m, i: m.transformer.h[i].attn.c_attn.weight.T[64:],
    "gpt_neox": lambda m, i: fused(m.gpt_neox.layers[i].attention.query_key_value.weight),
    "opt": lambda m, i: m.model.decoder.layers[i].self_attn.v_proj.weight,
}


class NoTask:
    """Scores of weights ask a task for its model alone."""

    def __init__(self, model):
        self.model = model


@pytest.mark.parametrize("family", VALUES)
def test_magnitude_is_the_norm_of_the_named_weights(family):
    model = tiny_model(family)
    heads = Heads(model)
    output, both = (score(name, heads, NoTask(model)) for name in ("magnitude", "magnitude:value-output"))
    for kind, layer, head in heads.index:
        module, _ = projections(model, family)[kind, layer]
        w_o = (module.weight if family == "gpt2" else module.weight.T).detach()[8 * head : 8 * head + 8].double()
        value = VALUES[family](model, layer).detach().double()  # (kv heads * 8, 32)
        group = head // (4 // (len(value) // 8))
        w_v = value[8 * group : 8 * group + 8].T
        assert output[kind, layer, head] == pytest.approx(w_o.square().sum().sqrt().item(), rel=1e-5)
        assert both[kind, layer, head] == pytest.approx((w_v @ w_o).square().sum().sqrt().item(), rel=1e-4)


def test_confidence_is_the_mean_largest_weight_among_words(judged):
    family, heads, task = judged
    if family == "bart":
        family_maps = encoder_decoder_maps
    else:
        family_maps = lambda model, batch: eager_maps(model, batch, family)  # noqa: E731
    total: dict = {}
    for batch in task.batches("select"):
        for (kind, layer), maps in family_maps(heads.model, batch).items():
            two = batch.target is not None
            queries = batch.target if two and kind != "encoder" else batch.source
            keys = batch.target if two and kind == "decoder" else batch.source
            for row in range(len(batch)):
                allowed = [j for j in range(maps.shape[-1]) if keys.valid[row, j] and not keys.special[row, j]]
                for i in range(maps.shape[-2]):
                    if queries.valid[row, i] and not queries.special[row, i]:
                        for head in range(4):
                            total.setdefault((kind, layer, head), []).append(maps[row, head, i, allowed].max())
    found = score("confidence", heads, task)
    for head in heads.index:
        assert found[head] == pytest.approx(np.mean(total[head]), rel=1e-4)


def encoder_decoder_maps(model, batch) -> dict:
    twin = copy.deepcopy(model)
    twin.set_attn_implementation("eager")
    with torch.no_grad():
        output = twin(**batch.inputs, output_attentions=True)
    named = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    return {(kind, 0): getattr(output, name)[0].double().numpy() for kind, name in named.items()}


def test_output_norm_is_the_mean_norm_over_real_tokens(judged):
    family, heads, task = judged
    total: dict = {}
    for batch in task.batches("select"):
        for key, norms in head_norms(heads.model, batch, family).items():
            tokens = batch.target if batch.target is not None and key[0] != "encoder" else batch.source
            total.setdefault(key, []).append(norms.transpose(0, 2, 1)[tokens.valid.numpy()])
    found = score("output_norm", heads, task)
    for kind, layer, head in heads.index:
        assert found[kind, layer, head] == pytest.approx(np.concatenate(total[kind, layer])[:, head].mean(), rel=1e-4)
    table = pd.DataFrame({"output_norm": np.arange(len(found), dtype=float)}, index=heads.index)
    assert score("output_norm", heads, task, table=table).tolist() == list(range(len(found)))
    normalised = score("output_norm:layer-normalised", heads, task)
    assert np.allclose(normalised.groupby(level=["kind", "layer"]).mean(), 1)


@pytest.mark.parametrize("shape", ["classifier", "decoder"])
def test_attattr_is_the_integral_over_scaled_attention_maps(shape):
    heads, task = tiny(shape, n=6)
    twin = copy.deepcopy(heads.model)
    twin.set_attn_implementation("eager")
    softmax, steps = nn.functional.softmax, 5
    rows: dict = {}
    for batch in task.batches("select"):
        real = (batch.source.valid[:, :, None] & batch.source.valid[:, None])[:, None]
        for layer in (0, 1):
            total: torch.Tensor | float = 0.0
            plain = None
            for step in range(1, steps + 1):
                calls, seen = iter((0, 1)), []

                def scaled(scores, *args, layer=layer, step=step, seen=seen, calls=calls, **kwargs):
                    weights = softmax(scores, *args, **kwargs)
                    if scores.dim() != 4 or next(calls) != layer:
                        return weights
                    leaf = (weights * step / steps).detach().requires_grad_()
                    seen.append((weights.detach(), leaf))
                    return leaf

                nn.functional.softmax = scaled
                try:
                    loss = task.losses(twin, batch).sum()
                finally:
                    nn.functional.softmax = softmax
                plain, leaf = seen[0]
                total = total + torch.autograd.grad(-loss, leaf)[0] / steps
            attribution = plain * total
            attribution = attribution.masked_fill(~(real & (plain > 0)), -torch.inf)
            rows.setdefault(layer, []).append(attribution.amax((2, 3)).double())
    found = score("attattr", heads, task, steps=steps)
    expected = torch.cat([torch.cat(rows[layer]).mean(0) for layer in (0, 1)])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-6)


# ---- relevance


def relevance_at(model, batch, task, modules) -> tuple[list[float], float]:
    """Sums of value times slope at the outputs of modules, and at the logits, under the rules."""
    seen: list[torch.Tensor] = []
    model.requires_grad_(False)  # weights are constants: only activations hand relevance on

    def note(module, args, output):
        output = output[0] if isinstance(output, tuple) else output
        output.requires_grad_() if output.is_leaf else None
        output.retain_grad()
        seen.append(output)

    logits: list[torch.Tensor] = []
    hooks = [module.register_forward_hook(note) for module in modules]
    hooks.append(model.register_forward_hook(lambda m, a, o: (o.logits.retain_grad(), logits.append(o.logits))[1]))
    try:
        with relevance_rules(model):
            (-task.losses(model, batch)).sum().backward()
    finally:
        for hook in hooks:
            hook.remove()
    model.zero_grad()
    return [(x * x.grad).sum().item() for x in seen], (logits[0] * logits[0].grad).sum().item()


def test_relevance_is_conserved_through_a_model_without_biases():
    heads, task = tiny("decoder")
    model = heads.model.double()
    with torch.no_grad():  # RMS norms, gated activations and rotary positions, no bias anywhere
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    batch = next(task.batches("select"))
    layers = list(model.model.layers)
    depths, start = relevance_at(model, batch, task, [model.model.embed_tokens, *layers])
    assert abs(start) > 1e-2
    for depth in depths:
        assert depth == pytest.approx(start, rel=1e-3)


def test_relevance_of_heads_is_that_of_the_layers_output():
    heads, task = tiny("decoder")
    found = score("lrp:raw", heads, task)
    totals = np.zeros(2)
    for batch in task.batches("select"):
        outputs, _ = relevance_at(
            heads.model, batch, task, [layer.self_attn.o_proj for layer in heads.model.model.layers]
        )
        totals += outputs
    assert np.allclose(found.groupby(level="layer").sum() * len(task.split("select")), totals, rtol=1e-3)
    shares = score("lrp", heads, task)
    assert (shares.abs().groupby(level="layer").sum() <= 1 + 1e-6).all()


def test_relevance_on_a_linear_path_is_what_each_head_contributes():
    """The logits are a linear map of the last layer's heads where nothing but sums and matrices follows."""
    heads, task = tiny("decoder")
    model = heads.model
    last = model.model.layers[-1]
    with torch.no_grad():
        last.mlp.down_proj.weight.zero_()
    model.model.norm = nn.Identity()
    entering: list[torch.Tensor] = []
    hook = last.self_attn.o_proj.register_forward_pre_hook(lambda m, args: entering.append(args[0].detach()))
    expected = []
    for batch in task.batches("select"):
        entering.clear()
        logits = model(**batch.inputs).logits.detach()
        top = logits.argmax(-1)
        width = entering[0].shape[-1] // 4
        for row in range(len(batch)):
            sums = np.zeros(4)
            for token in batch.source.valid[row].nonzero().flatten():
                direction = model.lm_head.weight[top[row, token]] @ last.self_attn.o_proj.weight
                part = entering[0][row, token] * direction.detach()
                sums += part.view(4, width).sum(-1).numpy()
            expected.append(sums)
    hook.remove()
    found = score("lrp:raw:top-logit", heads, task)
    assert found.name == "score_lrp:raw:top-logit"
    assert np.allclose(found.xs(1, level="layer"), np.mean(expected, 0), rtol=1e-3, atol=1e-5)


def test_the_rules_leave_values_and_model_alone():
    for shape in SHAPES:
        heads, task = tiny(shape)
        batch = next(task.batches("select"))
        before = losses_of(task, heads.model)
        with relevance_rules(heads.model):
            inside = task.losses(heads.model, batch).detach()
        assert torch.allclose(inside, task.losses(heads.model, batch), atol=1e-4)
        assert "forward" not in vars(heads.model)
        assert np.array_equal(losses_of(task, heads.model), before)


# ---- labels


def test_heads_with_the_label_go_first(judged):
    _, heads, task = judged
    found = score("label:previous_token", heads, task)
    table = heads.observe(list(task.batches("select")), ["previous_token"])
    assert np.allclose(found, -table["previous_token_score"].astype(float), equal_nan=True)
    own = table.assign(previous_token_score=np.linspace(0, 1, len(table)))
    assert score("label:previous_token", heads, task, table=own).idxmin() == own.index[-1]


def test_matched_random_heads_are_others_of_the_same_layers():
    heads, _ = tiny("classifier")
    chosen = [("encoder", 1, 0), ("encoder", 0, 3), ("encoder", 1, 2)]
    found = matched_random(chosen, heads.index, seed=5)
    assert [head[:2] for head in found] == [head[:2] for head in chosen]
    assert len(set(found)) == 3 and not set(map(tuple, found)) & set(chosen)
    assert matched_random(chosen, heads.index, seed=5) == found
    assert len({tuple(matched_random(chosen, heads.index, seed=seed)) for seed in range(30)}) > 3
    most = [("encoder", 0, head) for head in (0, 1, 2)]  # only one other is left
    filled = matched_random(most, heads.index)
    assert len(set(filled)) == 3 and filled[0] == ("encoder", 0, 3)
