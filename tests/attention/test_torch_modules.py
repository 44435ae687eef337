"""torch's own attention modules need no declaration: every option of theirs, against plain copies of the modules."""

from __future__ import annotations

import copy
import threading
import warnings

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from headlab import DeclaredSite, HeadMask, Heads
from headlab.attention.reach.multihead import opened
from headlab.base.errors import UnsupportedModelError, UsageError
from headlab.models.texts.batch import Batch
from tests.support.model_state import state_of
from tests.support.own_modules import HEADS, WIDTH, OwnEncoder, encoder_batch, seeded, tokens

LENGTHS = (9, 6, 4)


class Layer(nn.Module):
    """One MultiheadAttention in a model that reads token ids, called with the arguments it is given."""

    def __init__(self, *, need_weights=False, tokens_first=False, memory=WIDTH, **options) -> None:
        super().__init__()
        self.embedding, self.memory = nn.Embedding(40, WIDTH), nn.Embedding(40, memory)
        widths = {} if memory == WIDTH else {"kdim": memory, "vdim": memory}
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=not tokens_first, **widths, **options)
        self.need_weights, self.tokens_first = need_weights, tokens_first
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: Tensor, valid: Tensor, **masks: Tensor | bool) -> Tensor:
        x = self.embedding(ids)
        memory = x if self.attention._qkv_same_embed_dim else self.memory(ids)
        if self.tokens_first:
            x, memory = x.transpose(0, 1), memory.transpose(0, 1)
        output, weights = self.attention(
            x, memory, memory, key_padding_mask=masks.pop("padding", ~valid), need_weights=self.need_weights, **masks
        )
        if weights is not None:
            output = output + weights.mean()  # somebody uses them
        output = self.norm(x + output)
        return output.transpose(0, 1) if self.tokens_first else output


def with_inputs(batch: Batch, **more: object) -> Batch:
    return Batch({**batch.inputs, **more}, batch.source, batch.target, batch.examples)


def causal(n: int = 9) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def floats(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(mask, float("-inf"))


def without_head(model: nn.Module, head: int) -> nn.Module:
    twin = copy.deepcopy(model)
    width = WIDTH // HEADS
    with torch.no_grad():
        twin.attention.out_proj.weight[:, head * width : (head + 1) * width] = 0
    return twin


PADDED = encoder_batch(*LENGTHS)
SLOPED = torch.arange(9)[None] - torch.arange(9)[:, None]  # key minus query


@pytest.mark.parametrize(
    ("options", "masks"),
    [
        ({}, {}),
        ({"tokens_first": True}, {}),
        ({"bias": False}, {}),
        ({"memory": 24}, {}),
        ({"need_weights": True}, {}),
        ({"need_weights": True, "tokens_first": True}, {}),
        ({"dropout": 0.3}, {}),
        ({}, {"attn_mask": causal()}),
        ({}, {"attn_mask": causal(), "is_causal": True}),
        ({}, {"attn_mask": floats(causal()), "padding": floats(~PADDED.source.valid)}),
        ({"need_weights": True}, {"attn_mask": 0.3 * SLOPED.float(), "padding": floats(~PADDED.source.valid)}),
        ({}, {"attn_mask": causal().expand(3 * HEADS, 9, 9), "tokens_first": None}),
        (
            {},
            {
                "attn_mask": -0.5 * SLOPED.abs() * (torch.arange(3 * HEADS) % HEADS)[:, None, None],
                "padding": floats(~PADDED.source.valid),
            },
        ),
    ],
)
def test_every_option(options: dict, masks: dict) -> None:
    model = seeded(Layer, **options)
    batch = with_inputs(PADDED, **{k: v for k, v in masks.items() if k != "tokens_first"})
    before = state_of(model)
    heads = Heads(model, example=batch)
    assert heads.tier == 2 and heads.unseen == () and heads.sites[0].projection is model.attention.out_proj
    kind = "decoder" if masks.get("attn_mask") is not None and masks["attn_mask"].dtype == torch.bool else None
    assert kind in (None, heads.sites[0].kind)
    expected = weights_of(model, batch)
    torch.testing.assert_close(next(iter(heads.capture(batch).values())), expected)
    table = heads.observe([batch], labels=["positional", "sink"])
    diagonal = expected.diagonal(dim1=2, dim2=3).transpose(1, 2)[batch.source.valid].mean(0)
    torch.testing.assert_close(torch.tensor(table["self_mass"].to_numpy()), diagonal, check_dtype=False)
    assert table["output_norm"].notna().all() and table["sink_norm_share"].notna().all()
    with torch.no_grad():
        name = "D0H2" if heads.sites[0].kind == "decoder" else "E0H2"
        with heads.masked(HeadMask.removing(name.replace("D", "L").replace("E", "L"), like=heads)):
            masked = model(**batch.inputs)
        expected = without_head(model, 2)(**batch.inputs)
    torch.testing.assert_close(masked[batch.source.valid], expected[batch.source.valid])
    assert state_of(model) == before


@torch.no_grad()
def weights_of(model: nn.Module, batch: Batch) -> Tensor:
    """The maps that torch itself returns, head by head."""
    found: list[Tensor] = []
    twin = copy.deepcopy(model)
    forward = twin.attention.forward

    def asking(*arguments, **named):
        output, weights = forward(*arguments, **{**named, "need_weights": True, "average_attn_weights": False})
        found.append(weights)
        return output, weights.mean(1) if named["need_weights"] else None

    twin.attention.forward = asking
    twin(**batch.inputs)
    return found[0]


def test_the_weights_that_a_caller_uses_stay() -> None:
    model = seeded(Layer, need_weights=True)
    x = torch.randn(2, 5, WIDTH)
    for average in (True, False):
        with torch.no_grad():
            expected = model.attention(x, x, x, average_attn_weights=average)
            with opened(model):
                found = model.attention(x, x, x, average_attn_weights=average)
                single = model.attention(x[0], x[0], x[0], average_attn_weights=average)
        for ours, theirs in zip(found, expected):
            torch.testing.assert_close(ours, theirs)
        for ours, theirs in zip(single, expected):
            torch.testing.assert_close(ours, theirs[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_while_training_under_a_mask(need_weights: bool) -> None:
    """Removing heads from a model in training keeps its dropout: the same random numbers, the same outputs."""
    model = seeded(Layer, need_weights=need_weights, dropout=0.5).train()
    batch = with_inputs(PADDED, padding=None)
    heads = Heads(model, example=batch)
    assert model.training
    torch.manual_seed(5)
    expected = without_head(model, 1)(**batch.inputs)
    torch.manual_seed(5)
    with heads.masked(HeadMask.removing("L0H1", like=heads)):
        found = model(**batch.inputs)
    torch.testing.assert_close(found, expected)


class Embedded(nn.Module):
    """A torch encoder behind embeddings."""

    def __init__(self, *, tokens_first: bool = False, norm_first: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, batch_first=not tokens_first, norm_first=norm_first)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.encoder = nn.TransformerEncoder(layer, 2)
        self.tokens_first = tokens_first

    def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
        x = self.embedding(ids)
        x = self.encoder(x.transpose(0, 1) if self.tokens_first else x, src_key_padding_mask=~valid)
        return x.transpose(0, 1) if self.tokens_first else x


@pytest.mark.parametrize("options", [{}, {"tokens_first": True}, {"norm_first": True}])
def test_transformer_encoder(options: dict) -> None:
    """Compared with its own output, which in evaluation mode comes from fused kernels over packed texts."""
    model = seeded(Embedded, **options)
    before = state_of(model)
    heads = Heads(model, example=encoder_batch(*LENGTHS))
    assert heads.heads_per_layer == {("encoder", 0): HEADS, ("encoder", 1): HEADS} and heads.unseen == ()
    batch = encoder_batch(8, 5, 3, seed=4)
    with torch.no_grad():
        native = model(**batch.inputs)
        with heads.masked(HeadMask.removing("L0H1", like=heads)):
            masked = model(**batch.inputs)
        width = WIDTH // HEADS
        twin = copy.deepcopy(model)
        twin.encoder.layers[0].self_attn.out_proj.weight[:, width : 2 * width] = 0
        expected = twin(**batch.inputs)
    torch.testing.assert_close(masked[batch.source.valid], expected[batch.source.valid], atol=1e-5, rtol=1e-5)
    assert (masked - native)[batch.source.valid].abs().max() > 1e-3
    singles = []
    for row, length in enumerate((8, 5, 3)):
        text = batch.source.map(lambda t, row=row, length=length: t[row : row + 1, :length])
        single = Batch({"ids": text.ids, "valid": text.valid}, text, examples=(row,))
        scale = length / 8  # of the mean over tokens
        singles.append(scale * next(heads.gradients([single], valid_mean))[0])
    whole = next(
        heads.gradients([batch], lambda m, b: 1 / 8 * ((m(**b.inputs).square().mean(-1) * b.inputs["valid"]).sum(-1)))
    )
    for mine, single in zip(whole, singles):
        assert mine == pytest.approx(single, rel=1e-3, abs=1e-6)
    assert state_of(model) == before


def valid_mean(model: nn.Module, batch: Batch) -> Tensor:
    return model(**batch.inputs).square().mean((1, 2))


def mean_over_eight(model: nn.Module, batch: Batch) -> Tensor:
    return (model(**batch.inputs).square().mean(-1) * batch.inputs["valid"]).sum(-1) / 8


class Translator(nn.Module):
    """torch's whole Transformer behind embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, WIDTH)
        self.body = nn.Transformer(WIDTH, HEADS, 2, 2, 24, batch_first=True)

    def forward(self, source: Tensor, source_valid: Tensor, target: Tensor, target_valid: Tensor) -> Tensor:
        return self.body(
            self.embedding(source),
            self.embedding(target),
            tgt_mask=causal(target.shape[1]),
            src_key_padding_mask=~source_valid,
            tgt_key_padding_mask=~target_valid,
            memory_key_padding_mask=~source_valid,
            tgt_is_causal=True,
        )


def translation(source_lengths: tuple[int, ...], target_lengths: tuple[int, ...]) -> Batch:
    source, target = tokens(*source_lengths), tokens(*target_lengths, seed=1)
    inputs = {"source": source.ids, "source_valid": source.valid, "target": target.ids, "target_valid": target.valid}
    return Batch(inputs, source, target, examples=tuple(range(len(source_lengths))))


def test_transformer_of_two_stacks() -> None:
    model = seeded(Translator)
    heads = Heads(model, example=translation(LENGTHS, (7, 7, 3)))
    assert heads.heads_per_layer == {(kind, i): HEADS for kind in ("encoder", "decoder", "cross") for i in range(2)}
    table = heads.observe([translation((5, 9), (6, 4))])
    assert (table.loc["decoder"]["next_mass"].fillna(0) == 0).all() and table.loc["cross"]["self_mass"].isna().all()


def test_sides_of_the_same_length_are_refused() -> None:
    with pytest.raises(UsageError, match="both have 9 tokens"):
        Heads(seeded(Translator), example=translation(LENGTHS, LENGTHS))


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_keys_that_are_no_tokens_are_refused(options: dict) -> None:
    with pytest.raises(UnsupportedModelError, match="a key that is no token"):
        Heads(seeded(Layer, **options), example=PADDED)


def test_masks_that_differ_by_head_give_no_statistics() -> None:
    """What a head sees would be read off another head's mask."""
    mask = torch.zeros(3 * HEADS, 9, 9, dtype=torch.bool)
    mask[1::HEADS, :, 3:] = True  # head 1 sees three tokens
    heads = Heads(seeded(Layer), example=with_inputs(PADDED, attn_mask=mask))
    with pytest.raises(UnsupportedModelError, match="a mask of its own"):
        heads.observe([with_inputs(PADDED, attn_mask=mask)])


class OwnForward(nn.MultiheadAttention):
    """A subclass whose forward headlab cannot know."""

    def forward(self, *arguments, **named):
        output, weights = super().forward(*arguments, **named)
        return 2 * output, weights


def test_a_subclass_with_its_own_forward_is_refused_or_proven() -> None:
    model = seeded(Layer)
    model.attention.__class__ = OwnForward
    with pytest.raises(UnsupportedModelError, match="cannot be seen"):
        Heads(model, example=PADDED)


def test_transformers_and_torch_attention_in_one_model() -> None:
    from tests.support.tiny_models import tiny_model

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = tiny_model("bert", bare=True)
            self.config = self.base.config
            self.top = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            x = self.base(input_ids, attention_mask).last_hidden_state
            return self.top(x, x, x, key_padding_mask=attention_mask == 0, need_weights=False)[0]

    heads = Heads(Both().eval())
    assert heads.n_heads == 12 and heads.unseen == ()


def test_threads_share_a_module() -> None:
    """Two contexts on one module, left in the order in which they were entered."""
    model = seeded(Layer)
    before = state_of(model)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with opened(model):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    with opened(model):
        thread.start()
        entered.wait()
    assert "forward" in vars(model.attention)
    leave.set()
    thread.join()
    assert state_of(model) == before


def test_declared_and_found_are_the_same() -> None:
    """Sites of torch modules may also be declared, without weights: the masks are the same."""
    model = seeded(Embedded)
    found = Heads(model, example=encoder_batch(*LENGTHS))
    sites = [DeclaredSite("encoder", i, HEADS, f"encoder.layers.{i}.self_attn.out_proj") for i in range(2)]
    declared = Heads(model, sites, example=encoder_batch(*LENGTHS))
    batch = encoder_batch(8, 5, seed=4)
    with torch.no_grad():
        results = []
        for heads in (found, declared):
            with heads.masked(HeadMask.removing("L0H1,L1H3", like=heads)):
                results.append(model(**batch.inputs))
    torch.testing.assert_close(*results)


def test_a_softmax_is_found_without_declaration_and_declared_alike() -> None:
    model = seeded(OwnEncoder)
    for layer in model.layers:
        layer.weights = nn.Softmax(-1)  # over weights already normalised: still an attention
    declared = [DeclaredSite("encoder", i, HEADS, f"layers.{i}.out", f"layers.{i}.weights") for i in range(2)]
    batch = encoder_batch(*LENGTHS)
    tables = [Heads(model, sites, example=batch).observe([batch]) for sites in (None, declared)]
    pd.testing.assert_frame_equal(*tables)
