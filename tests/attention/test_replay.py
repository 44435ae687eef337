"""Passes that begin at the edited layer give what whole masked passes give, or are not used, with the reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    Gemma3nForCausalLM,
    Gemma3nTextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from headlab.attention.change import replay as engine
from headlab.attention.change.replay import Replay, replay_of
from headlab.attention.heads import Heads
from headlab.base.masks import HeadMask
from tests.support.engine_models import RandomTask, tiny_bart, tiny_bert


def token_losses(model, batch) -> torch.Tensor:
    """Mean loss of predicting each text's next token, padding left out: (examples,)."""
    logits, ids, valid = model(**batch.inputs).logits[:, :-1], batch.source.ids[:, 1:], batch.source.valid[:, 1:]
    losses = cross_entropy(logits.transpose(1, 2), ids, reduction="none") * valid
    return losses.sum(1) / valid.sum(1)


def with_token_losses(model, n: int = 24) -> tuple[Heads, RandomTask]:
    task = RandomTask(model, n=n)
    task.losses = token_losses
    return Heads(model), task


def tiny_llama() -> tuple[Heads, RandomTask]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.4,
    )
    return with_token_losses(LlamaForCausalLM(config).eval())


def tiny_t5() -> tuple[Heads, RandomTask]:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=60,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    model = T5ForConditionalGeneration(config).eval()
    return Heads(model), RandomTask(model, n=12)


def one_by_one(heads: Heads, task: RandomTask, ablation: str = "zero", means: object = None) -> np.ndarray:
    """Every head masked alone, whole passes: (heads, examples)."""
    rows = []
    for head in heads.index:
        with heads.masked(HeadMask.removing([head], like=heads), ablation, means), torch.no_grad():
            losses = [task.losses(heads.model, batch).double() for batch in task.batches()]
        rows.append(torch.cat(losses).numpy())
    return np.stack(rows)


def replayed(heads: Heads, task: RandomTask, ablation: str = "zero", means: object = None) -> np.ndarray:
    taken = [replay_of(heads.subject).record(batch, task.losses, ablation, means) for batch in task.batches()]
    return np.concatenate([one.without(list(heads.index)) for one in taken], axis=1)


@pytest.mark.parametrize("stack", [0, 10_000], ids=["one mask a pass", "all masks of a layer in one pass"])
@pytest.mark.parametrize("made", [tiny_bert, tiny_llama, tiny_bart, tiny_t5])
def test_losses_without_each_head_equal_those_of_whole_passes(made, stack, monkeypatch):
    monkeypatch.setattr(engine, "STACK_TOKENS", stack)
    heads, task = made()
    assert replay_of(heads.subject).reason == "" and replay_of(heads.subject).stacks
    whole = one_by_one(heads, task)
    assert np.ptp(whole, axis=0).max() > 1e-3, "heads must matter"
    np.testing.assert_allclose(replayed(heads, task), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ablation", ["mean", "resample", "uniform"])
@pytest.mark.parametrize("made", [tiny_bert, tiny_llama, tiny_bart])
def test_other_ablations_are_replayed_too(made, ablation):
    heads, task = made()
    means = heads.replacements(ablation, list(task.batches()), seed=0)
    np.testing.assert_allclose(
        replayed(heads, task, ablation, means), one_by_one(heads, task, ablation, means), rtol=1e-5, atol=1e-6
    )


def test_layers_before_the_edited_one_do_not_run():
    heads, task = tiny_llama()
    replay = replay_of(heads.subject)
    taken = replay.record(next(task.batches()), task.losses)
    ran = []
    for number, layer in enumerate(heads.model.model.layers):
        layer.mlp.register_forward_hook(lambda *_, number=number: ran.append(number))
    asked = []
    heads.model.model.layers[1].self_attn.q_proj.register_forward_hook(lambda *_: asked.append(1))
    taken.without([("decoder", 1, 0)])
    assert ran == [1, 2], "the edited layer and those after it, once"
    assert not asked, "nor does the attention of the edited layer"


def test_the_model_is_as_it_was():
    heads, task = tiny_bert()
    before = {name: tensor.clone() for name, tensor in heads.model.state_dict().items()}
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in heads.model.modules()]
    heads.model.train()
    with torch.no_grad():
        replayed(heads, task)
    assert heads.model.training
    assert not [name for name, module in heads.model.named_modules() if "forward" in vars(module)]
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in heads.model.modules()]
    assert all(torch.equal(tensor, before[name]) for name, tensor in heads.model.state_dict().items())


def test_a_failing_loss_leaves_the_model_as_it_was():
    heads, task = tiny_bert()
    taken = replay_of(heads.subject).record(next(task.batches()), task.losses)
    taken.loss = lambda model, batch: 1 / 0
    with pytest.raises(ZeroDivisionError):
        taken.without([heads.index[0]])
    assert not [name for name, module in heads.model.named_modules() if "forward" in vars(module)]


def test_one_module_for_all_layers_is_run_whole_with_the_reason():
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=60,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=32,
        initializer_range=0.4,
    )
    heads, task = with_token_losses(AlbertForMaskedLM(config).eval())
    assert "serves several layers" in replay_of(heads.subject).reason
    np.testing.assert_allclose(replayed(heads, task), one_by_one(heads, task), rtol=1e-5)


def test_layers_that_exchange_state_in_another_way_are_found_out():
    """The layers' own mlp reads what another layer left behind."""
    heads, task = tiny_llama()
    layers = heads.model.model.layers
    left: dict[str, torch.Tensor] = {}
    layers[0].mlp.register_forward_hook(lambda module, given, out: left.__setitem__("x", out.mean()))
    layers[0].register_forward_pre_hook(lambda module, given: left.clear())
    layers[2].mlp.register_forward_hook(lambda module, given, out: out + left.pop("x", 0.0))
    replay = Replay(heads.subject)
    assert "exchange more" in replay.reason
    taken = [replay.record(batch, task.losses) for batch in task.batches()]
    found = np.concatenate([one.without(list(heads.index)) for one in taken], axis=1)
    np.testing.assert_array_equal(found, one_by_one(heads, task))


def test_shared_keys_and_values_of_gemma_are_right_whichever_way_is_taken():
    torch.manual_seed(0)
    config = Gemma3nTextConfig(
        vocab_size=60,
        vocab_size_per_layer_input=60,
        hidden_size=32,
        hidden_size_per_layer_input=8,
        intermediate_size=40,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=8,
        max_position_embeddings=32,
        laurel_rank=4,
        altup_num_inputs=2,
        activation_sparsity_pattern=[0.0] * 4,
    )
    heads, task = with_token_losses(Gemma3nForCausalLM(config).eval(), n=6)
    np.testing.assert_allclose(replayed(heads, task), one_by_one(heads, task), rtol=1e-5, atol=1e-6)


def test_a_loss_that_runs_the_model_twice_is_measured_by_whole_passes():
    heads, task = tiny_llama()
    plain = task.losses
    task.losses = lambda model, batch: plain(model, batch) + plain(model, batch)
    np.testing.assert_allclose(replayed(heads, task), one_by_one(heads, task), rtol=1e-5, atol=1e-6)
