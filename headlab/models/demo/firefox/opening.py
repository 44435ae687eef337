"""Opens the translation students of Firefox: a Marian binary file with its tokenizer beside it, as a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headlab.base.errors import CheckpointError
from headlab.models.checkpoint import Checkpoint
from headlab.models.demo.firefox.binary import MarianFile, damaged, read_marian
from headlab.models.demo.firefox.student import FirefoxStudent, StudentConfig
from headlab.models.folders import file_sha256

# What the file must say of itself for the module here to be the same model.
EXPECTED = {
    "type": "transformer",
    "dec-cell": "ssru",
    "transformer-decoder-autoreg": "rnn",
    "tied-embeddings-all": "true",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-ffn-activation": "relu",
    "transformer-ffn-depth": "2",
    "transformer-train-position-embeddings": "false",
}


def open_student(
    name: str,
    weights: Path,
    *,
    purpose: str = "auto",
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str = torch.float32,
) -> Checkpoint:
    """The student in `weights`, with the tokenizer.json of the same folder, in eval mode.

    Raises CheckpointError for a damaged file, another architecture, or a purpose other than translation.
    """
    if purpose not in ("auto", "lm"):
        raise CheckpointError(f"{name} translates; it cannot be opened for {purpose!r}.", 'Use purpose="lm".')
    model = load_student(weights)
    if isinstance(dtype, torch.dtype):
        model = model.to(dtype=dtype)
    return Checkpoint(
        name=name,
        model=model.to(device),
        tokenizer=student_tokenizer(weights.parent / "tokenizer.json", model.config),
        revision=f"sha256:{file_sha256(weights)[:16]}",
        purpose=purpose,
        adds={"bos": False, "cls": False, "sep": False, "eos": True},
        is_encoder_decoder=True,
    )


def load_student(weights: Path) -> FirefoxStudent:
    """The torch module of a student's Marian file, float32, in eval mode."""
    file = read_marian(weights)
    config = _config(weights, file)
    with torch.device("meta"):  # the weights come from the file
        model = FirefoxStudent(config)
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    state = {}
    for name, source, transposed in _sources(config):
        array = file.arrays.get(source)
        if array is None:
            raise damaged(weights, f"it has no {source}")
        # Marian keeps a matrix as (inputs, outputs), but an 8-bit one with rows and columns exchanged in memory, which
        # is what torch wants; vectors are matrices of one row.
        array = array.reshape(array.shape[::-1]) if transposed else array
        array = array.reshape(-1) if len(expected[name]) == 1 else array
        if array.shape != expected[name]:
            raise damaged(weights, f"{source} has the shape {array.shape} instead of {expected[name]}")
        state[name] = torch.from_numpy(np.ascontiguousarray(array))
    model.load_state_dict(state, strict=True, assign=True)
    return model.requires_grad_(True).eval()


def _config(path: Path, file: MarianFile) -> StudentConfig:
    for key, value in EXPECTED.items():
        if file.settings.get(key) != value:
            raise CheckpointError(
                f"{path.name} has {key}: {file.settings.get(key)!r}, and {value!r} is read.",
                "Only Marian's `tiny` students with SSRU decoders can be opened.",
            )
    table, inner = file.arrays.get("Wemb"), file.arrays.get("encoder_l1_ffn_W1")
    heads = file.settings.get("transformer-heads", "")
    if table is None or inner is None or table.ndim != 2 or inner.ndim != 2:
        raise damaged(path, "it has no embeddings or no encoder")
    vocabulary, width = table.shape
    if not heads.isdecimal() or int(heads) < 1 or width % int(heads) or width % 2:
        raise damaged(path, f"{heads or 'no'} heads do not divide the width {width}")
    return StudentConfig(
        vocab_size=vocabulary,
        d_model=width,
        n_heads=int(heads),
        ffn_dim=inner.shape[1],
        encoder_layers=_depth(file, "encoder_l{}_self_Wq"),
        decoder_layers=_depth(file, "decoder_l{}_context_Wq"),
    )


def _depth(file: MarianFile, pattern: str) -> int:
    depth = 0
    while pattern.format(depth + 1) in file.arrays:
        depth += 1
    return depth


def _sources(config: StudentConfig) -> Iterator[tuple[str, str, bool]]:
    """(parameter of the module, array of the file, whether the file has it transposed)."""
    yield "embedding.weight", "Wemb", False
    yield "output_bias", "decoder_ff_logit_out_b", False
    for layer in range(config.encoder_layers):
        ours, theirs = f"encoder.{layer}.", f"encoder_l{layer + 1}_"
        yield from _attention(f"{ours}self_attention", f"{ours}attention_norm", f"{theirs}self")
        yield from _feed_forward(ours, theirs)
    for layer in range(config.decoder_layers):
        ours, theirs = f"decoder.{layer}.", f"decoder_l{layer + 1}_"
        yield f"{ours}recurrence.candidate.weight", f"{theirs}rnn_W", True
        yield f"{ours}recurrence.forget.weight", f"{theirs}rnn_Wf", True
        yield f"{ours}recurrence.forget.bias", f"{theirs}rnn_bf", False
        yield from _norm(f"{ours}recurrence_norm", f"{theirs}rnn_ffn")
        yield from _attention(f"{ours}cross_attention", f"{ours}attention_norm", f"{theirs}context")
        yield from _feed_forward(ours, theirs)


def _attention(ours: str, norm: str, theirs: str) -> Iterator[tuple[str, str, bool]]:
    for name, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
        yield f"{ours}.{name}.weight", f"{theirs}_W{letter}", True
        yield f"{ours}.{name}.bias", f"{theirs}_b{letter}", False
    yield from _norm(norm, f"{theirs}_Wo")


def _feed_forward(ours: str, theirs: str) -> Iterator[tuple[str, str, bool]]:
    for name, number in (("up", 1), ("down", 2)):
        yield f"{ours}feed_forward.{name}.weight", f"{theirs}ffn_W{number}", True
        yield f"{ours}feed_forward.{name}.bias", f"{theirs}ffn_b{number}", False
    yield from _norm(f"{ours}feed_forward_norm", f"{theirs}ffn_ffn")


def _norm(ours: str, theirs: str) -> Iterator[tuple[str, str, bool]]:
    yield f"{ours}.weight", f"{theirs}_ln_scale", False
    yield f"{ours}.bias", f"{theirs}_ln_bias", False


def student_tokenizer(path: Path, config: StudentConfig) -> Any:
    """The student's SentencePiece vocabulary as a fast tokenizer, which puts the end token behind a text."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(path), eos_token="</s>", unk_token="<unk>", pad_token="</s>"
        )
    except Exception as error:  # the tokenizers library raises bare Exception
        raise CheckpointError(
            f"{path.name} is no tokenizer: {str(error).splitlines()[0]}.", "Install the package or copy it again."
        ) from error
    if tokenizer.vocab_size != config.vocab_size or tokenizer.eos_token_id != config.eos_token_id:
        raise CheckpointError(
            f"{path.name} belongs to another model: it has {tokenizer.vocab_size} tokens, the model "
            f"has {config.vocab_size}.",
            "Install the package or copy it again.",
        )
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", config.eos_token_id)]
    )
    return tokenizer
