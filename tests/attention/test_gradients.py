"""Gate gradients against finite differences, against Michel's other form, and example by example."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from headlab.attention.heads import Heads
from tests.support.reference import make_batch, random_text, sample_batches, sample_texts
from tests.support.tiny_models import FAMILIES, projections, tiny_model

ONE_CALL = [name for name, family in FAMILIES.items() if family.shared_calls == 1]


def loss(model, batch) -> torch.Tensor:
    """A smooth number per example: mean squared logit over its real tokens, as a task would count them."""
    logits = model(**batch.inputs).logits
    counted = (batch.target or batch.source).valid
    return (logits.square().mean(-1) * counted).sum(1) / counted.sum(1)


class StayDouble(TorchFunctionMode):
    """Normalisations and rotations round to single precision on purpose; for small steps they must not."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def double(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            return args[0].double()
        kwargs = {name: double(value) for name, value in (kwargs or {}).items()}
        return function(*(double(value) for value in args), **kwargs)


def hooked_loss(twin, batch, module, call: int, head: int, gate: float) -> np.ndarray:
    """The loss of each example with one head's slice scaled by `gate`, by a hook of our own."""
    calls = iter(range(100))

    def scale(m, args):
        if next(calls) != call:
            return None
        entering = args[0].clone()
        width = entering.shape[-1] // 4
        entering[..., head * width : (head + 1) * width] *= gate
        return (entering,)

    hook = module.register_forward_pre_hook(scale)
    with torch.no_grad(), StayDouble():
        found = loss(twin, batch)
    hook.remove()
    assert found.dtype == torch.float64
    return found.numpy()


def finite_slopes(model, batch, name: str, step: float = 1e-6) -> np.ndarray:
    """Central differences of each example's loss in double precision, heads in the order of the projections."""
    twin = copy.deepcopy(model).double()
    if hasattr(twin, "set_experts_implementation"):
        twin.set_experts_implementation("eager")  # the grouped product has no double precision
    columns = []
    for module, call in projections(twin, name).values():
        for head in range(4):
            up, down = (hooked_loss(twin, batch, module, call, head, 1 + sign * step) for sign in (1, -1))
            columns.append((up - down) / (2 * step))
    return np.stack(columns, 1)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_equal_finite_differences(name: str) -> None:
    """D loss / d gate by (loss(1 + e) - loss(1 - e)) / 2 e; columns in the order of the index."""
    model = tiny_model(name)
    heads = Heads(model)
    batch = sample_batches(name)[0]
    rows = next(iter(heads.gradients([batch], loss)))
    expected = finite_slopes(model, batch, name)
    order = [(*key, head) for key in projections(model, name) for head in range(4)]
    expected = expected[:, [order.index(tuple(head)) for head in heads.index]]
    assert rows.shape == expected.shape == (len(batch), heads.n_heads)
    scale = np.abs(expected).max()
    assert scale > 1e-2
    np.testing.assert_allclose(rows, expected, atol=1e-4 * max(1.0, scale))


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_gradients_equal_michels_product_form(name: str) -> None:
    """Michel et al. 2019 (1905.10650), equation 5: dL / d xi_h = Att_h(x)^T dL / d Att_h(x), here with its sign."""
    model = tiny_model(name)
    heads = Heads(model)
    batch = sample_batches(name)[0]
    entering: dict = {}
    hooks = []
    for key, (module, _) in projections(model, name).items():

        def keep(m, args, key=key):
            args[0].retain_grad()
            entering[key] = args[0]

        hooks.append(module.register_forward_pre_hook(keep))
    loss(model, batch).sum().backward()
    for hook in hooks:
        hook.remove()
    rows = next(iter(heads.gradients([batch], loss)))
    for column, (kind, layer, head) in enumerate(heads.index):
        att = entering[kind, layer]
        product = (att * att.grad).view(len(batch), -1, 4, att.shape[-1] // 4)[:, :, head].sum((1, 2))
        np.testing.assert_allclose(rows[:, column], product.detach().numpy(), atol=1e-4 * max(1, np.abs(rows).max()))


@pytest.mark.parametrize("name", ["bert", "llama", "albert", "marian"])
def test_rows_equal_those_of_single_examples(name: str) -> None:
    heads = Heads(tiny_model(name))
    texts, targets = sample_texts(name)
    whole = next(iter(heads.gradients([make_batch(texts, targets)], loss)))
    for i in range(len(texts)):
        single = make_batch(texts[i : i + 1], None if targets is None else targets[i : i + 1])
        row = next(iter(heads.gradients([single], loss)))
        np.testing.assert_allclose(whole[i], row[0], atol=1e-4 * max(1.0, np.abs(whole).max()))


def test_rows_of_one_example_are_summed() -> None:
    heads = Heads(tiny_model("llama"))
    batch = make_batch([random_text(6, seed, separators=False) for seed in range(4)])
    apart = next(iter(heads.gradients([batch], loss)))
    pairs = next(iter(heads.gradients([replace(batch, examples=(7, 7, 2, 2))], loss)))
    np.testing.assert_allclose(pairs, [apart[0] + apart[1], apart[2] + apart[3]])


def test_a_dead_head_has_no_gradient() -> None:
    """A head whose rows of the projection are zero is worth nothing, to machine precision."""
    model = tiny_model("bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.output.dense.weight[:, 8:16] = 0
    heads = Heads(model)
    rows = next(iter(heads.gradients(sample_batches("bert"), loss)))
    dead = list(heads.index).index(("encoder", 1, 1))
    assert (rows[:, dead] == 0).all()
    assert (np.abs(np.delete(rows, dead, 1)).max(0) > 1e-6).all()


def test_no_gradient_is_left_in_the_parameters() -> None:
    model = tiny_model("bert")
    list(Heads(model).gradients(sample_batches("bert"), loss))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_gradients_where_the_caller_has_turned_them_off() -> None:
    heads = Heads(tiny_model("bert"))
    batches = sample_batches("bert")
    expected = next(iter(heads.gradients(batches, loss)))
    with torch.no_grad():
        found = next(iter(heads.gradients(batches, loss)))
        assert not torch.is_grad_enabled()
    np.testing.assert_array_equal(found, expected)


def test_nothing_is_changed_while_the_caller_holds_a_half_used_iterator() -> None:
    model = tiny_model("bert")
    rows = Heads(model).gradients(sample_batches("bert"), loss)
    next(rows)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())
