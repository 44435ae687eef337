"""Tiny models: every kind of layer kept, same weights for the same seed, names that do not exist refused."""

from __future__ import annotations

import pytest
import torch

from headlab.base.errors import UsageError
from headlab.testing.tiny.models import tiny_config, tiny_model


@pytest.mark.parametrize(
    ("model_type", "kinds"),
    [
        ("gemma3_text", {"sliding_attention", "full_attention"}),
        ("qwen3_next", {"linear_attention", "full_attention"}),
        ("jamba", {"linear_attention", "full_attention"}),
    ],
)
def test_each_kind_of_layer_stays(model_type: str, kinds: set[str]) -> None:
    config = tiny_config(model_type)
    assert set(config.layer_types) == kinds
    assert config.num_hidden_layers == len(config.layer_types) <= 4


def test_layers_that_share_keys_come_with_the_layers_that_make_them() -> None:
    config = tiny_config("gemma3n_text")
    own = config.layer_types[: -config.num_kv_shared_layers]
    assert config.num_kv_shared_layers > 0 and set(own) == set(config.layer_types)


def test_ids_stay_inside_the_vocabulary() -> None:
    config = tiny_config("gemma3")
    assert config.image_token_id < config.text_config.vocab_size <= 200


def test_the_seed_decides_the_weights_and_leaves_the_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, again, other = (tiny_model("llama", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    pairs = list(zip(first.parameters(), again.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)
    assert sum(p.numel() for p in first.parameters()) < 200_000


def test_attention_is_far_from_uniform() -> None:
    model = tiny_model("llama", attn_implementation="eager")
    with torch.no_grad():
        maps = model(input_ids=torch.arange(5, 17)[None], output_attentions=True).attentions
    last = maps[0][0, :, -1]
    assert (last.max(-1).values > 2 / last.shape[-1]).all()


def test_overrides_win_and_purposes_choose_the_class() -> None:
    assert tiny_model("bert", "causal-lm", num_hidden_layers=3).config.num_hidden_layers == 3
    assert type(tiny_model("bart", "seq2seq-lm")).__name__ == "BartForConditionalGeneration"
    assert type(tiny_model("bert", "features")).__name__ == "BertModel"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="Did you mean 'llama'"):
        tiny_model("lama")
    with pytest.raises(UsageError, match="no seq2seq-lm model"):
        tiny_model("llama", "seq2seq-lm")
    with pytest.raises(UsageError, match="Unknown purpose"):
        tiny_model("llama", "poetry")
