"""The revision of a local folder stands for everything that its outputs depend on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel

from headlab.base.errors import UsageError
from headlab.models import open_model


def test_another_configuration_or_tokenizer_is_another_revision(tmp_path: Path) -> None:
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30)
    BertModel(config).save_pretrained(tmp_path)
    first = open_model(str(tmp_path)).revision
    assert open_model(str(tmp_path)).revision == first
    (tmp_path / "README.md").write_text("words")
    assert open_model(str(tmp_path)).revision == first
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"hidden_act": "relu"}))
    second = open_model(str(tmp_path)).revision
    assert second != first
    (tmp_path / "vocab.txt").write_text("[UNK]\n[PAD]\n")
    assert len({first, second, open_model(str(tmp_path)).revision}) == 3


def test_a_revision_of_what_has_none_is_refused(tmp_path: Path) -> None:
    for name in (str(tmp_path), "demo:minilm"):
        with pytest.raises(UsageError, match="is no hub id, and only those have revisions"):
            open_model(name, revision="main")
