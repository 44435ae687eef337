"""Weights are not contributions: shares of norms and slopes of the loss by key class, against eager attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headlab.attention.change.key_gradients import key_gradients
from headlab.attention.heads import Heads
from headlab.labels import load_label
from headlab.models.texts.batch import Batch
from tests.support.reference import sample_batches
from tests.support.tiny_models import tiny_model


def values_of(model, batch: Batch) -> list[torch.Tensor]:
    """Transformed values of each layer of a tiny BERT, (batch, head, key, model width), by hand."""
    found = []
    for layer in model.bert.encoder.layer:
        attention, dense = layer.attention.self, layer.attention.output.dense
        hooked: list[torch.Tensor] = []
        hook = attention.value.register_forward_hook(lambda m, i, o, hooked=hooked: hooked.append(o.detach()))
        with torch.no_grad():
            model(**batch.inputs)
        hook.remove()
        value = hooked[0].view(*hooked[0].shape[:2], attention.num_attention_heads, -1).transpose(1, 2)
        width = value.shape[-1]
        weight = torch.stack([dense.weight[:, h * width : (h + 1) * width] for h in range(value.shape[1])])
        found.append(torch.einsum("bhkd,hmd->bhkm", value, weight.detach()))
    return found


def test_norm_shares_of_the_first_token() -> None:
    """Kobayashi et al. 2020 (2004.10102): ||a_ij f(x_j)||, as a share of its sum over keys."""
    model = tiny_model("bert")
    heads, batches = Heads(model), sample_batches("bert")
    table = heads.observe(batches, labels=["sink", "separator"])
    total, count = {}, 0
    for batch in batches:
        maps, values = heads.capture(batch), values_of(model, batch)
        valid = batch.source.valid
        for (_, layer), attention in maps.items():
            norms = values[layer].norm(dim=-1)[:, :, None] * attention  # (batch, head, query, key)
            share = norms[..., 0] / norms.sum(-1)
            total[layer] = total.get(layer, 0) + torch.einsum("bhq,bq->h", share, valid.float())
        count += int(valid.sum())
    for layer, value in total.items():
        np.testing.assert_allclose(table.loc[("encoder", layer), "sink_norm_share"], value / count, atol=1e-5)
    assert table["separator_norm_share"].between(0, 1).all()


def loss(model, batch: Batch) -> torch.Tensor:
    hidden = model(**batch.inputs).logits
    return (hidden.pow(3) * batch.source.valid[..., None]).sum((1, 2))


def test_slopes_equal_autograd_on_eager_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clark et al. 2019, section 3.2: mean |d loss / d a_ij| by key class."""
    import transformers.models.bert.modeling_bert as bert

    model = tiny_model("bert")
    heads, batches = Heads(model), sample_batches("bert")[:1]
    table = key_gradients(heads, batches, loss, [load_label("sink"), load_label("separator")])
    maps: list[torch.Tensor] = []

    def eager(module, query, key, value, mask, scaling=None, **_):
        scores = query @ key.transpose(-1, -2) * (scaling or query.shape[-1] ** -0.5)
        scores = scores if mask is None else scores + mask
        attention = scores.softmax(-1)
        leaf = torch.zeros_like(attention, requires_grad=True)
        maps.append(leaf)
        return ((attention + leaf) @ value).transpose(1, 2), attention

    monkeypatch.setattr(bert, "eager_attention_forward", eager)
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    slopes = torch.autograd.grad(loss(model, batches[0]).sum(), maps)
    model.set_attn_implementation(before)
    valid = batches[0].source.valid
    pairs = (valid[:, :, None] & valid[:, None]).float()
    for layer, slope in enumerate(slopes):
        size = slope.abs() * pairs[:, None]
        queries = valid.sum()
        rows = table.loc[("encoder", layer)]
        np.testing.assert_allclose(rows["gradient_all"], size.sum((0, 2, 3)) / queries, rtol=1e-3)
        np.testing.assert_allclose(rows["gradient_sink"], size[..., 0].sum((0, 2)) / queries, rtol=1e-3)
        closing = batches[0].source.separator
        counted = (valid & closing.any(-1, keepdim=True)).sum()
        on = torch.einsum("bhqk,bk->h", size, closing.float())
        np.testing.assert_allclose(rows["gradient_separator"], on / counted, rtol=1e-3)


def test_the_model_is_left_as_found() -> None:
    model = tiny_model("bert")
    heads = Heads(model)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    key_gradients(heads, sample_batches("bert")[:1], loss, [load_label("sink")])
    assert flags == [parameter.requires_grad for parameter in model.parameters()]
    assert all(parameter.grad is None for parameter in model.parameters())
