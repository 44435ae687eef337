"""Language modelling against loops written out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from headlab.base.errors import CheckpointError, DataError, UsageError
from headlab.models.texts.encoding import encode_texts
from headlab.tasks import task
from headlab.tasks.running.likelihood import first_choice


def by_hand(checkpoint, text: str, size: int) -> tuple[float, float, int]:
    """Summed nll, hits and tokens, one unpadded window and one token at a time."""
    ids = checkpoint.tokenizer(text, add_special_tokens=False)["input_ids"]
    full = checkpoint.tokenizer(text)["input_ids"]
    bos = [full[0]] if full[0] != ids[0] else []
    windows = []
    if bos:
        for start in range(0, len(ids), size - 1):
            windows.append(bos + ids[start : start + size - 1])
    else:
        start = 0
        while start < len(ids) - 1:
            windows.append(ids[start : start + size])
            start += size - 1
    nll, hits, tokens = 0.0, 0, 0
    for window in windows:
        with torch.no_grad():
            logits = checkpoint.model(torch.tensor([window])).logits[0].double()
        for place in range(1, len(window)):
            probabilities = torch.softmax(logits[place - 1], dim=0)
            nll -= math.log(probabilities[window[place]].item())
            hits += int(probabilities.argmax()) == window[place]
            tokens += 1
    assert tokens == len(ids) - (0 if bos else 1)  # every token once
    return nll, hits, tokens


@pytest.fixture
def text(words) -> str:
    return words(152, seed=0)


@pytest.fixture
def file(text, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_values_equal_a_loop_over_tokens(causal, file, text):
    found = task("lm", causal, data=file, max_length=16).evaluate()
    nll, hits, tokens = by_hand(causal, text, 16)
    assert found.examples["tokens"].sum() == tokens
    assert found.examples["hits"].sum() == hits
    assert found.values["perplexity"] == pytest.approx(math.exp(nll / tokens), rel=1e-5)
    assert found.values["next_token_accuracy"] == pytest.approx(hits / tokens)


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 5}, {"batch_size": 100}])
@pytest.mark.parametrize("pad_side", ["left", "right"])
def test_batch_size_and_padding_side_change_nothing(causal, file, text, options, pad_side):
    # 152 words in windows of 16 leave a shorter last window, which is padded in a batch of more than one.
    found = task("lm", causal, data=file, max_length=16, pad_side=pad_side, **options).evaluate()
    nll, _, tokens = by_hand(causal, text, 16)
    assert found.values["perplexity"] == pytest.approx(math.exp(nll / tokens), rel=1e-5)


def test_a_padded_window_scores_as_it_does_alone(causal, file):
    together = task("lm", causal, data=file, max_length=16, batch_size=100)
    assert any((~batch.source.valid).any() for batch in together.batches())
    alone = task("lm", causal, data=file, max_length=16, batch_size=1)
    first, second = together.evaluate().examples, alone.evaluate().examples
    assert list(first.index) == list(second.index) == list(range(together.n_examples))
    assert (first - second).abs().to_numpy().max() < 1e-4


def test_losses_are_differentiable_means_per_token(causal, file):
    judged = task("lm", causal, data=file, max_length=16)
    batch = next(judged.batches("select"))
    losses = judged.losses(causal.model, batch)
    losses.sum().backward()
    assert causal.model.get_input_embeddings().weight.grad.abs().sum() > 0
    rows = judged.evaluate("select").examples
    expected = [rows.loc[i, "nll"] / rows.loc[i, "tokens"] for i in batch.examples]
    assert losses.detach().tolist() == pytest.approx(expected, rel=1e-5)


def test_logits_at_padding_are_never_looked_at(causal, file):
    judged = task("lm", causal, data=file, max_length=16, batch_size=100)
    batch = next(batch for batch in judged.batches() if (~batch.source.valid).any())
    expected = judged.losses(causal.model, batch).detach()
    hook = causal.model.get_output_embeddings().register_forward_hook(
        lambda module, args, output: output * torch.where(batch.source.valid, 1.0, torch.nan)[..., None]
    )
    losses = judged.losses(causal.model, batch)
    hook.remove()
    assert torch.equal(losses.detach(), expected)


def test_first_choice_is_the_argmax_also_between_equals():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(4, (500, 6), generator=generator).float()  # many ties
    ids = torch.randint(6, (500,), generator=generator)
    expected = [max(range(6), key=lambda place: row[place]) == i for row, i in zip(scores.tolist(), ids.tolist())]
    assert first_choice(scores, ids).tolist() == expected
    assert not all(scores[k, i] == scores[k].max() for k, i in enumerate(ids.tolist()))


def test_nan_is_recorded_and_does_not_raise(causal, file):
    judged = task("lm", causal, data=file, max_length=16)
    with torch.no_grad():
        causal.model.get_output_embeddings().weight[7] = float("nan")
    found = judged.evaluate()
    assert math.isnan(found.values["perplexity"]) and math.isnan(found.values["next_token_accuracy"])
    assert found.examples["tokens"].notna().all()


def test_softcapped_logits_are_the_models_own(causal, text, file):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8, "vocab_size": 66}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "final_logit_softcapping": 0.5}
    causal.model = Gemma2ForCausalLM(Gemma2Config(**sizes, **heads)).eval()
    with torch.no_grad():
        causal.model.get_input_embeddings().weight.mul_(20)
    nll, _, tokens = by_hand(causal, text, 16)
    found = task("lm", causal, data=file, max_length=16).evaluate()
    assert found.values["perplexity"] == pytest.approx(math.exp(nll / tokens), rel=1e-5)
    # Capped at 0.5, no token can be much likelier than another: without the cap the value would leave this range.
    assert 66 * math.exp(-1) < found.values["perplexity"] < 66 * math.exp(1)


def test_models_that_look_ahead_are_refused(bidirectional, file):
    with pytest.raises(UsageError, match="looks? ahead") as caught:
        task("lm", bidirectional, data=file)
    assert "causal" in caught.value.remedy


def test_encoder_decoders_are_refused(causal, file):
    causal.is_encoder_decoder = True
    with pytest.raises(UsageError, match="encoder-decoder"):
        task("lm", causal, data=file)


def test_a_text_of_one_token_is_refused(causal, tmp_path):
    (tmp_path / "one.txt").write_text("w1", encoding="utf-8")
    with pytest.raises(DataError, match="fewer than 2 tokens"):
        task("lm", causal, data=tmp_path / "one.txt")


def test_windows_never_exceed_the_limit_and_a_longer_one_is_refused(causal, file):
    judged = task("lm", causal, data=file)
    assert judged.max_length == 64 and judged.n_examples >= 3
    assert max(batch.source.ids.shape[1] for batch in judged.batches()) <= 64
    with pytest.raises(UsageError, match="65"):
        task("lm", causal, data=file, max_length=65)


def test_the_training_flags_and_progress(causal, file):
    judged = task("lm", causal, data=file, max_length=16, batch_size=4)
    causal.model.train()
    frozen = next(module for module in causal.model.modules() if not list(module.children()))
    frozen.eval()
    steps = []
    judged.evaluate(progress=lambda done, total: steps.append((done, total)))
    assert causal.model.training and not frozen.training
    assert steps[-1] == (judged.n_examples, judged.n_examples)
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})


def test_limit_and_signature(causal, file):
    whole = task("lm", causal, data=file, max_length=16)
    some = task("lm", causal, data=file, max_length=16, limit=3, batch_size=1)
    assert some.n_examples == 3
    assert (some.evaluate().examples - whole.evaluate().examples.iloc[:3]).abs().to_numpy().max() < 1e-4
    assert task("lm", causal, data=file, max_length=16, batch_size=7).signature() == whole.signature()
    assert whole.signature()["data"] == "text.txt"
    assert set(whole.signature()["metrics"]) == {"perplexity", "next_token_accuracy"}


def test_options_that_mean_nothing_are_refused(llama) -> None:
    with pytest.raises(UsageError, match="does not use the option 'label_column'"):
        task("lm", llama, label_column="foo")


def test_a_tokenizer_with_more_ids_than_the_model_has_embeddings_is_named(llama) -> None:
    import copy

    small = copy.copy(llama)
    small.model = copy.deepcopy(llama.model)
    small.model.resize_token_embeddings(1)
    with pytest.raises(CheckpointError, match=r"gives the token id \d+, and the model has 1 embeddings"):
        task("lm", small)
    with pytest.raises(CheckpointError, match="1 embeddings"):
        encode_texts(small, ["the cat sat on the mat"])
