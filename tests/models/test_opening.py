"""Checkpoints are opened with the class for the purpose, or refused in one line of cause and one of remedy."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM, BertModel, RobertaConfig, RobertaModel
from transformers.utils import logging

import headlab
from headlab.base.errors import CheckpointError, HeadlabError, UsageError
from headlab.models import open_model
from headlab.models.checkpoint import token_limit


def one_line_each(error: HeadlabError) -> bool:
    return bool(error.cause and error.remedy) and "\n" not in error.cause + error.remedy


def test_a_folder_gives_the_saved_model_in_eval_mode(bert_folder: Path) -> None:
    checkpoint = open_model(str(bert_folder))
    saved = BertForMaskedLM.from_pretrained(bert_folder).state_dict()
    assert type(checkpoint.model) is BertForMaskedLM and not checkpoint.model.training
    assert all(torch.equal(value, saved[name]) for name, value in checkpoint.model.state_dict().items())
    assert checkpoint.max_length == 12
    assert checkpoint.adds == {"bos": False, "cls": True, "sep": True, "eos": False}
    assert not checkpoint.is_encoder_decoder


def settings(folder: Path) -> bytes:
    """What a model depends on beside its weights, one file after the other."""
    names = ("config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
    return b"".join((folder / name).read_bytes() for name in names if (folder / name).is_file())


def test_the_revision_of_a_folder_is_the_hash_of_its_weights_and_settings(bert_folder: Path) -> None:
    digest = hashlib.sha256((bert_folder / "model.safetensors").read_bytes() + settings(bert_folder)).hexdigest()
    assert open_model(str(bert_folder)).revision == f"sha256:{digest[:16]}"


def test_sharded_weights_are_opened_and_hashed_shard_by_shard(bert_folder: Path, tmp_path: Path) -> None:
    BertForMaskedLM.from_pretrained(bert_folder).save_pretrained(tmp_path, max_shard_size="8KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    digest = hashlib.sha256(b"".join(shard.read_bytes() for shard in shards) + settings(tmp_path)).hexdigest()
    assert len(shards) > 1
    assert open_model(str(tmp_path)).revision == f"sha256:{digest[:16]}"
    shards[0].unlink()
    with pytest.raises(CheckpointError, match=f"lacks {shards[0].name}"):
        open_model(str(tmp_path))


@pytest.mark.parametrize(
    ("folder", "purpose", "class_name"),
    [
        ("bert_folder", "lm", "BertForMaskedLM"),
        ("bert_folder", "features", "BertModel"),
        ("encoder_folder", "auto", "BertModel"),
        ("llama_folder", "auto", "LlamaForCausalLM"),
        ("llama_folder", "lm", "LlamaForCausalLM"),
        ("llama_folder", "causal-lm", "LlamaForCausalLM"),
        ("llama_folder", "features", "LlamaModel"),
        ("bart_folder", "lm", "BartForConditionalGeneration"),
    ],
)
def test_the_purpose_chooses_the_class(folder: str, purpose: str, class_name: str, request) -> None:
    checkpoint = open_model(str(request.getfixturevalue(folder)), purpose=purpose)
    assert type(checkpoint.model).__name__ == class_name
    assert checkpoint.describe()["class"] == class_name


@pytest.mark.parametrize(
    ("purpose", "missing"),
    [("lm", "cls.predictions"), ("causal-lm", "cls.predictions"), ("classification", "classifier")],
)
def test_a_head_that_the_checkpoint_lacks_is_not_made_up(encoder_folder: Path, purpose: str, missing: str) -> None:
    with pytest.raises(CheckpointError, match=missing) as caught:
        open_model(str(encoder_folder), purpose=purpose)
    assert one_line_each(caught.value)


def test_missing_weights_of_a_layer_are_refused(bert_folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(bert_folder, tmp_path / "copy")
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.attention.self.query.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="layer.1.attention.self.query.weight"):
        open_model(str(folder))


def test_dtype_and_description(llama_folder: Path) -> None:
    checkpoint = open_model(str(llama_folder), dtype="bfloat16")
    described = checkpoint.describe()
    assert next(checkpoint.model.parameters()).dtype == torch.bfloat16
    assert described["dtype"] == "bfloat16" and described["name"] == str(llama_folder)
    assert described["adds"] == dict.fromkeys(("bos", "cls", "sep", "eos"), False)
    assert json.loads(json.dumps(described)) == described


def test_a_folder_without_a_tokenizer_has_none(bert_folder: Path, tmp_path: Path) -> None:
    BertModel.from_pretrained(bert_folder).save_pretrained(tmp_path)
    checkpoint = open_model(str(tmp_path))
    assert checkpoint.tokenizer is None and checkpoint.adds == {}


def test_positions_that_no_token_gets_do_not_count() -> None:
    config = RobertaConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=34,
        pad_token_id=1,
    )
    model = RobertaModel(config).eval()
    limit = token_limit(model)
    assert limit == 32
    model(torch.full((1, limit), 5))  # one more would be beyond the table
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, limit + 1), 5))


def test_settings_of_transformers_are_put_back(bert_folder: Path, tmp_path: Path) -> None:
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    open_model(str(bert_folder))
    with pytest.raises(CheckpointError):
        open_model(str(bert_folder), purpose="classification")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_nothing_is_printed(encoder_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_model(str(encoder_folder), purpose="features")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "kind", "cause"),
    [
        ("demo:minilmm", UsageError, "Unknown model 'demo:minilmm'"),
        ("someone/bert-tiny", CheckpointError, "not in the local cache of the hub, and the hub cannot be reached"),
        ("no such folder", CheckpointError, "There is no folder no such folder"),
        ("./missing", CheckpointError, "There is no folder ./missing"),
        ("missing.gguf", CheckpointError, "There is no file missing.gguf"),
        (__file__, CheckpointError, "is a file, but no .gguf file"),
    ],
)
def test_names_that_lead_nowhere(
    name: str, kind: type[HeadlabError], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.models.opening.hub_is_reachable", lambda: False)
    with pytest.raises(kind, match=cause) as caught:
        open_model(name)
    assert one_line_each(caught.value)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ({"purpose": "features "}, "Unknown purpose"),
        ({"dtype": "float31"}, "Unknown dtype"),
        ({"device": "toaster"}, "device 'toaster' cannot be used"),
        ({"device": "meta"}, "device 'meta' holds no numbers"),
    ],
)
def test_arguments_that_do_not_exist(bert_folder: Path, arguments: dict[str, str], cause: str) -> None:
    with pytest.raises(UsageError, match=cause) as caught:
        open_model(str(bert_folder), **arguments)
    assert one_line_each(caught.value)


def broken(bert_folder: Path, folder: Path, how: str) -> Path:
    """A copy of a checkpoint with one thing wrong."""
    shutil.copytree(bert_folder, folder)
    config, weights = folder / "config.json", folder / "model.safetensors"
    if how == "no config":
        config.unlink()
    elif how == "config cut off":
        config.write_text('{"model_type": ', encoding="utf-8")
    elif how == "unknown type":
        config.write_text('{"model_type": "perceptron"}', encoding="utf-8")
    elif how == "no weights":
        weights.unlink()
    elif how == "pickle":
        weights.rename(folder / "pytorch_model.bin")
    elif how == "weights cut off":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif how == "other size":
        config.write_text(config.read_text().replace('"hidden_size": 16', '"hidden_size": 32'))
    elif how == "remote code":
        code = {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
        config.write_text(json.dumps(code), encoding="utf-8")
        (folder / "own.py").write_text("raise SystemExit('ran')\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("no config", "has no config.json"),
        ("config cut off", "is not a model's configuration"),
        ("unknown type", "cannot be opened"),
        ("no weights", "has no weights"),
        ("pickle", r"not in safetensors \(pytorch_model.bin\)"),
        ("weights cut off", "cannot be opened"),
        ("other size", "cannot be opened"),
        ("remote code", "runs code that comes with the checkpoint"),
    ],
)
def test_folders_that_are_refused(bert_folder: Path, tmp_path: Path, how: str, cause: str) -> None:
    with pytest.raises(CheckpointError, match=cause) as caught:
        open_model(str(broken(bert_folder, tmp_path / "broken", how)))
    assert one_line_each(caught.value)


@pytest.mark.parametrize(("content", "found"), [(b"", "it is empty"), (b"PK\x03\x04....", "starts with b'PK")])
def test_a_file_that_is_no_gguf(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=found) as caught:
        open_model(str(path))
    assert one_line_each(caught.value)


def test_a_gguf_that_is_cut_off(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\x01\x00\x00\x00\x00\x00\x00\x00")
    with pytest.raises(CheckpointError, match="cannot be opened") as caught:
        open_model(str(path))
    assert one_line_each(caught.value)


def test_the_public_name_is_the_same_function() -> None:
    assert headlab.open_model is open_model
