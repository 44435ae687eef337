"""Situations in which models are used: generation, precision, offloading, training, compilation, several at once."""

from __future__ import annotations

import copy
import gc
import importlib.util
import json
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from headlab import HeadMask, Heads
from headlab.base.errors import CheckpointError, UnsupportedModelError
from headlab.models import open_model
from headlab.models.texts.batch import Batch
from tests.support.model_state import state_of
from tests.support.reference import make_batch, random_text, sample_batches, with_positions
from tests.support.tiny_models import FAMILIES, projections, rows_of_head, tiny_model

# What observing in half precision may differ by from single precision on tiny random models: statistics absolutely
# (nats and tokens, masses), outputs of masked models relative to their largest value.
STATISTICS_MAY_DIFFER = {torch.bfloat16: 0.06, torch.float16: 0.01}
OUTPUTS_MAY_DIFFER = {torch.bfloat16: 0.03, torch.float16: 0.004}
MASSES = ["max_weight", "first_mass", "self_mass", "prev_mass", "entropy_norm"]


def zeroed(model: nn.Module, name: str, gone: list[tuple[str, int, int]]) -> nn.Module:
    """A copy whose projections have the rows of these heads zeroed."""
    twin = copy.deepcopy(model)
    places = projections(twin, name)
    with torch.no_grad():
        for kind, layer, head in gone:
            rows_of_head(twin, name, places[kind, layer][0], head).zero_()
    return twin


def removal(heads: Heads) -> tuple[HeadMask, list[tuple[str, int, int]]]:
    """A head or two of every layer."""
    gone = [(*site.key, head) for i, site in enumerate(heads.sites) for head in {i % 4, (2 * i + 1) % 4}]
    return HeadMask.removing(gone, like=heads), gone


# ---- padding and batching (observe: test_batches_and_memory)


@pytest.mark.parametrize("pad_side", ["right", "left"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2", "gpt_oss", "t5", "mpnet"])
def test_masked_outputs_and_gradients_of_a_batch_are_those_of_its_texts(name: str, pad_side: str) -> None:
    if pad_side == "left" and name in ("bert", "mpnet"):
        pytest.skip("absolute positions that this family counts from the padding")
    model = tiny_model(name)
    heads = Heads(model)
    texts = [random_text(n, n, separators=False) for n in (9, 5, 7)]
    targets = [random_text(n, n + 1, separators=False) for n in (6, 6, 4)] if name == "t5" else None
    whole = make_batch(texts, targets, pad_side=pad_side)
    whole = with_positions(whole) if name in ("gpt2", "llama", "gemma2", "gpt_oss") else whole
    mask, _ = removal(heads)
    slopes = next(heads.gradients([whole], summed))
    with torch.no_grad(), heads.masked(mask):
        logits = model(**whole.inputs).logits
        for row, text in enumerate(texts):
            single = make_batch([text], None if targets is None else [targets[row]], first_id=row)
            side = whole.target or whole.source
            torch.testing.assert_close(
                logits[row][side.valid[row]], model(**single.inputs).logits[0], atol=2e-4, rtol=2e-4
            )
    for row, text in enumerate(texts):
        single = make_batch([text], None if targets is None else [targets[row]], first_id=row)
        np.testing.assert_allclose(slopes[row], next(heads.gradients([single], summed))[0], rtol=2e-3, atol=2e-3)


def summed(model: nn.Module, batch: Batch) -> torch.Tensor:
    valid = (batch.target or batch.source).valid
    return (model(**batch.inputs).logits.logsumexp(-1) * valid).sum(-1)


def test_a_projection_that_gets_tokens_first() -> None:
    """FSMT computes on (token, batch, width): gates and norms are still those of each text."""
    import transformers

    torch.manual_seed(0)
    sizes = {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 32))
    }
    config = transformers.FSMTConfig(
        langs=["en", "de"], src_vocab_size=60, tgt_vocab_size=60, d_model=32, init_std=0.3, pad_token_id=0, **sizes
    )
    heads = Heads(transformers.FSMTForConditionalGeneration(config).eval())
    assert all(site.tokens_first for site in heads.sites)
    texts, targets = ([random_text(n, n + i, separators=False) for i in range(3)] for n in (9, 6))
    whole = make_batch(texts, targets)
    singles = [make_batch([text], [target], first_id=i) for i, (text, target) in enumerate(zip(texts, targets))]
    slopes = next(heads.gradients([whole], summed))
    np.testing.assert_allclose(slopes, np.concatenate(list(heads.gradients(singles, summed))), rtol=1e-3, atol=1e-4)
    pd.testing.assert_frame_equal(heads.observe([whole]), heads.observe(singles), atol=1e-5)


# ---- generation


@pytest.mark.parametrize(
    "decoding",
    [
        {"do_sample": False},
        {"do_sample": False, "cache_implementation": "static"},
        {"do_sample": False, "use_cache": False},
        {"do_sample": False, "num_beams": 3},
        {"do_sample": True, "top_k": 20},
    ],
    ids=["dynamic", "static", "no cache", "beams", "sampling"],
)
@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox", "gpt_oss", "qwen3_next", "t5", "bart"])
def test_generation_under_a_mask_is_that_of_zeroed_rows(name: str, decoding: dict) -> None:
    if "cache_implementation" in decoding and name == "qwen3_next":
        pytest.skip("its linear attention has no static cache")
    model = tiny_model(name)
    heads = Heads(model)
    mask, gone = removal(heads)
    twin = zeroed(model, name, gone)
    side = "right" if FAMILIES[name].two_stacks else "left"
    prompt = make_batch([random_text(n, n, separators=False) for n in (6, 4)], pad_side=side)
    inputs = {"input_ids": prompt.inputs["input_ids"], "attention_mask": prompt.inputs["attention_mask"]}
    options = {**decoding, "max_new_tokens": 6, "min_new_tokens": 6, "pad_token_id": 0}

    def generated(generator: nn.Module) -> list[list[int]]:
        torch.manual_seed(3)
        return generator.generate(**inputs, **options).tolist()

    plain = generated(model)
    with heads.masked(mask):
        masked = generated(model)
    assert masked == generated(twin)
    assert masked != plain == generated(model)


def test_heads_are_seen_while_generating() -> None:
    """One capture between two generations: nothing that a cache holds is mixed up."""
    model = tiny_model("llama")
    heads = Heads(model)
    batch = sample_batches("llama")[0]
    before = heads.capture(batch)
    model.generate(batch.inputs["input_ids"], max_new_tokens=4, cache_implementation="static", pad_token_id=0)
    for key, attention in heads.capture(batch).items():
        torch.testing.assert_close(attention, before[key])


# ---- precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "llama", "gemma2", "t5", "mpnet"])
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    single, half = tiny_model(name), tiny_model(name).to(dtype)
    for parameter, other in zip(single.parameters(), half.parameters()):
        parameter.data.copy_(other)  # the same weights, so that only arithmetic differs
    batch = sample_batches(name if name != "mpnet" else "bert")
    reference, heads = Heads(single), Heads(half)
    assert heads.tier == reference.tier and all(proof.passed for proof in heads.proofs)
    expected, table = reference.observe(batch), heads.observe(batch)
    gaps = (table[MASSES].astype(float) - expected[MASSES].astype(float)).abs()
    assert gaps.max().max() < STATISTICS_MAY_DIFFER[dtype]
    mask, _ = removal(heads)
    with torch.no_grad():
        with heads.masked(mask):
            masked = half(**batch[0].inputs).logits.float()
        with reference.masked(mask):
            wanted = single(**batch[0].inputs).logits
    valid = (batch[0].target or batch[0].source).valid
    gap = (masked - wanted)[valid].abs().max() / wanted[valid].abs().max()
    assert gap < OUTPUTS_MAY_DIFFER[dtype]
    slopes = np.concatenate(list(heads.gradients(batch, summed)))
    steep = np.concatenate(list(reference.gradients(batch, summed)))
    assert np.isfinite(slopes).all() and np.corrcoef(slopes.ravel(), steep.ravel())[0, 1] > 0.99


def test_autocast() -> None:
    model = tiny_model("llama")
    heads = Heads(model)
    batch = sample_batches("llama")[0]
    mask, gone = removal(heads)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        with heads.masked(mask):
            masked = model(**batch.inputs).logits
        expected = zeroed(model, "llama", gone)(**batch.inputs).logits
    torch.testing.assert_close(masked, expected)


# ---- offloading


@pytest.fixture
def offloaded(tmp_path: Path) -> nn.Module:
    """A Llama with one layer in memory and one on disk, whose weights are `meta` outside of its forward."""
    pytest.importorskip("accelerate")
    from transformers import LlamaForCausalLM

    tiny_model("llama").save_pretrained(tmp_path / "model")
    places = {
        "model.embed_tokens": "cpu",
        "model.layers.0": "cpu",
        "model.layers.1": "disk",
        "model.norm": "cpu",
        "model.rotary_emb": "cpu",
        "lm_head": "disk",
    }
    return LlamaForCausalLM.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=str(tmp_path / "offload")
    ).eval()


def test_offloaded_layers_are_seen_and_removed(offloaded: nn.Module) -> None:
    whole = Heads(tiny_model("llama"))
    heads = Heads(offloaded)
    assert any(p.is_meta for p in offloaded.parameters()) and all(proof.passed for proof in heads.proofs)
    batches = sample_batches("llama")
    expected, table = (h.observe(batches, labels=["positional", "sink"]) for h in (whole, heads))
    norms = [name for name in table.columns if "norm" in name and name != "entropy_norm" and "entropy" not in name]
    pd.testing.assert_frame_equal(table.drop(columns=norms), expected.drop(columns=norms), atol=1e-5)
    assert table.loc[("decoder", 0), "output_norm"].notna().all()
    assert table.loc[("decoder", 1), "output_norm"].isna().all()
    mask, _ = removal(heads)
    with torch.no_grad():
        with heads.masked(mask):
            masked = offloaded(**batches[0].inputs).logits
        with whole.masked(mask):
            torch.testing.assert_close(masked, whole.model(**batches[0].inputs).logits)
    for mine, other in zip(heads.capture(batches[0]).values(), whole.capture(batches[0]).values()):
        torch.testing.assert_close(mine, other)
    slopes, steep = (next(h.gradients(batches, summed)) for h in (heads, whole))
    np.testing.assert_allclose(slopes, steep, rtol=1e-3, atol=1e-4)


# ---- training


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_a_model_in_training_is_looked_at_without_dropout_and_left_training(name: str) -> None:
    calm, model = tiny_model(name), tiny_model(name)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.4
    model.train()
    before = state_of(model)
    heads = Heads(model)
    table = heads.observe(sample_batches(name))
    slopes = list(heads.gradients(sample_batches(name), summed))
    after = state_of(model)
    assert after == before and model.training
    pd.testing.assert_frame_equal(table, Heads(calm).observe(sample_batches(name)), atol=1e-6)
    for mine, other in zip(slopes, Heads(calm).gradients(sample_batches(name), summed)):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def test_training_under_a_mask_keeps_dropout_and_trains_nothing_of_the_removed_heads() -> None:
    model = tiny_model("gpt2").train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.4
    heads = Heads(model)
    mask, gone = removal(heads)
    twin = zeroed(model, "gpt2", gone)
    batch = sample_batches("gpt2")[0]
    losses = []
    for seed, trained in ((1, model), (1, twin), (2, model)):
        torch.manual_seed(seed)
        if trained is model:
            with heads.masked(mask):
                losses.append(summed(model, batch).sum())
        else:
            losses.append(summed(twin, batch).sum())
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    assert losses[0].item() != pytest.approx(losses[2].item(), rel=1e-5)
    losses[0].backward()
    for kind, layer, head in gone:
        module = projections(model, "gpt2")[kind, layer][0]
        assert module.weight.grad[head * 8 : (head + 1) * 8].abs().max() == 0


# ---- compilation


@pytest.mark.parametrize("how", ["torch.compile, heads of the model", "torch.compile, heads of it", "model.compile"])
def test_compiled_models(how: str) -> None:
    """Compiled code heeds no hook, so it is left aside while headlab looks, and used again afterwards."""
    model = tiny_model("llama")
    batch = sample_batches("llama")[0]
    plain = Heads(tiny_model("llama"))
    mask, gone = removal(plain)
    if how == "model.compile":
        model.compile(backend="eager")
        called = model
    else:
        called = torch.compile(model, backend="eager")
    with torch.no_grad():
        before = called(**batch.inputs).logits
        heads = Heads(called if how.endswith("of it") else model)
        with heads.masked(mask):
            masked = called(**batch.inputs).logits
        with plain.masked(mask):
            torch.testing.assert_close(masked, plain.model(**batch.inputs).logits)
        torch.testing.assert_close(called(**batch.inputs).logits, before)
    assert heads.heads_per_layer == plain.heads_per_layer
    pd.testing.assert_frame_equal(heads.observe([batch]), plain.observe([batch]))
    slopes = [next(h.gradients([batch], summed)) for h in (heads, plain)]
    np.testing.assert_allclose(*slopes, rtol=1e-5, atol=1e-6)
    assert torch._dynamo.eval_frame._stance.stance == "default"
    torch._dynamo.reset()


# ---- several models


def test_several_models_open_at_once() -> None:
    names = ["bert", "llama", "gemma2", "t5", "mpnet"]
    alone = {}
    for name in names:
        heads = Heads(tiny_model(name))
        mask, _ = removal(heads)
        batch = sample_batches(name if name != "mpnet" else "bert")[0]
        with torch.no_grad(), heads.masked(mask):
            alone[name] = heads.model(**batch.inputs).logits, heads.observe([batch])
    together = {name: Heads(tiny_model(name)) for name in names}
    with torch.no_grad():
        for name, heads in together.items():
            others = [h for other, h in together.items() if other != name]
            batch = sample_batches(name if name != "mpnet" else "bert")[0]
            with heads.masked(removal(heads)[0]), others[0].masked(removal(others[0])[0]):
                torch.testing.assert_close(heads.model(**batch.inputs).logits, alone[name][0])
                pd.testing.assert_frame_equal(heads.observe([batch]), alone[name][1])


def test_masked_models_in_threads() -> None:
    """Each thread with its model and mask; generation, observation and gradients at once."""
    names = ["bert", "llama", "mpnet", "t5"]
    batches = {name: sample_batches(name if name != "mpnet" else "bert")[0] for name in names}
    heads = {name: Heads(tiny_model(name)) for name in names}

    def work(name: str) -> tuple:
        subject = heads[name]
        with torch.no_grad(), subject.masked(removal(subject)[0]):
            logits = subject.model(**batches[name].inputs).logits
        return logits, subject.observe([batches[name]]), next(subject.gradients([batches[name]], summed))

    expected = {name: work(name) for name in names}
    found: dict[str, tuple] = {}
    failures: list[BaseException] = []
    gate = threading.Barrier(len(names))

    def loop(name: str) -> None:
        try:
            gate.wait()
            for _ in range(3):
                found[name] = work(name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for name in names:
        torch.testing.assert_close(found[name][0], expected[name][0])
        pd.testing.assert_frame_equal(found[name][1], expected[name][1])
        np.testing.assert_allclose(found[name][2], expected[name][2], rtol=1e-4, atol=1e-6)


def test_nothing_keeps_a_model_alive() -> None:
    import weakref

    heads = Heads(tiny_model("llama"))
    heads.observe(sample_batches("llama"))
    gone = weakref.ref(heads.model)
    del heads
    gc.collect()
    assert gone() is None


# ---- refusals


def test_a_model_without_attention_is_refused() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, state_size=4)
    with pytest.raises(UnsupportedModelError, match="MambaForCausalLM has no softmax attention"):
        Heads(MambaForCausalLM(config).eval())


def test_a_vision_model_is_refused() -> None:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=16, patch_size=8
    )
    with pytest.raises(UnsupportedModelError, match="ViTModel does not read tokens"):
        Heads(ViTModel(config).eval())


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_model_is_refused() -> None:
    quantised = torch.ao.quantization.quantize_dynamic(tiny_model("llama"), {nn.Linear})
    with pytest.raises(UnsupportedModelError, match="quantised \\(Linear of torch\\)") as refusal:
        Heads(quantised)
    assert "made from" in refusal.value.remedy
    model = tiny_model("llama")
    model.model.layers[0].mlp.up_proj.weight = nn.Parameter(torch.zeros(48, 32, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(UnsupportedModelError, match="quantised \\(uint8\\)"):
        Heads(model)


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq"])
def test_a_quantised_checkpoint_is_refused_where_its_reader_is_missing(tmp_path: Path, method: str) -> None:
    if importlib.util.find_spec({"bitsandbytes": "bitsandbytes", "gptq": "optimum"}[method]):
        pytest.skip("its reader is installed")
    tiny_model("llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4, "load_in_4bit": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="is quantised"):
        open_model(str(tmp_path))
