"""Opening a checkpoint by name: hub id, folder, .gguf file or demo:NAME."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from headlab.base.errors import CheckpointError, UsageError, unknown_name
from headlab.models.checkpoint import Checkpoint, token_limit
from headlab.models.classes import PURPOSES, model_class, require_trained
from headlab.models.demo.checkpoints import PREFIX, demo_folder, student_weights
from headlab.models.folders import check_folder, file_sha256, has_tokenizer, settings_files, weights_files
from headlab.models.gguf_files import check_gguf, forget_quantization, silent_unpacking, unpacked
from headlab.models.loading_errors import translated
from headlab.models.network import hub_is_reachable
from headlab.models.notices import quiet
from headlab.models.texts.special_tokens import adds

DTYPES = ("float32", "float16", "bfloat16", "float64", "auto")


@dataclass(frozen=True)
class Source:
    """Where a checkpoint is read from: what transformers is called with, and the revision where it is known."""

    place: str
    options: dict[str, Any]
    revision: str | None = None  # of local files
    local: bool = True


def open_model(
    name: str,
    *,
    purpose: str = "auto",
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Checkpoint:
    """Open a checkpoint with its tokenizer, in eval mode.

    `purpose`: "auto" (the class that the checkpoint names, else the bare model), "lm" (causal, masked or
    sequence-to-sequence language model), "causal-lm", "classification" (of whole texts) or "features" (bare model).
    Raises UsageError for a purpose, dtype, device or demo name that does not exist; CheckpointError where the
    checkpoint cannot be opened, has no safetensors, needs code of its own, or lacks the weights for the purpose.
    """
    if purpose not in PURPOSES:
        raise unknown_name("purpose", purpose, PURPOSES)
    kind, place = _dtype(dtype), _device(device)
    if (weights := student_weights(str(name))) is not None:
        from headlab.models.demo.firefox.opening import open_student

        return open_student(str(name), weights, purpose=purpose, device=place, dtype=kind)
    source = _locate(str(name), revision)
    options = source.options | {"trust_remote_code": trust_remote_code}
    with quiet(local=source.local), translated(str(name), local=source.local):
        config = transformers.AutoConfig.from_pretrained(source.place, **options)
        model = _load(str(name), source.place, config, purpose, kind, options)
        tokenizer = _tokenizer(source, options)
    model = _on_device(model.eval(), place)
    return Checkpoint(
        name=str(name),
        model=model,
        tokenizer=tokenizer,
        revision=source.revision or getattr(config, "_commit_hash", None) or revision or "unknown",
        purpose=purpose,
        max_length=token_limit(model, tokenizer),
        adds=adds(tokenizer),
        is_encoder_decoder=bool(getattr(model.config, "is_encoder_decoder", False)),
    )


def _locate(name: str, revision: str | None) -> Source:
    path = Path(name).expanduser()
    if revision and (name.startswith(PREFIX) or path.exists()):
        raise UsageError(f"{name} is no hub id, and only those have revisions.", "Leave out the revision.")
    if name.startswith(PREFIX):
        folder, sha256 = demo_folder(name, open_model)
        return _folder(folder, f"sha256:{sha256[:16]}")
    if path.suffix.lower() == ".gguf" and (path.is_file() or not _may_be_hub_id(name)):
        check_gguf(path)
        options = {"gguf_file": path.name, "local_files_only": True}
        return Source(str(path.parent), options, f"sha256:{file_sha256(path)[:16]}")
    if path.is_dir():
        check_folder(path)
        return _folder(path, f"sha256:{file_sha256(*weights_files(path), *settings_files(path))[:16]}")
    if path.exists():
        raise CheckpointError(f"{name} is a file, but no .gguf file.", "Name a folder, a .gguf file or a hub id.")
    if not _may_be_hub_id(name):
        raise CheckpointError(f"There is no folder {name}.", "Name a folder, a .gguf file, a hub id or demo:NAME.")
    options = {"revision": revision} if revision else {}
    return Source(name, options | {"local_files_only": not hub_is_reachable()}, local=False)


def _folder(folder: Path, revision: str) -> Source:
    return Source(str(folder), {"local_files_only": True}, revision)


def _may_be_hub_id(name: str) -> bool:
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return not name.endswith(".gguf")


def _load(name: str, place: str, config: Any, purpose: str, dtype: Any, options: dict[str, Any]) -> Any:
    if purpose == "auto" and "gguf_file" in options and not getattr(config, "architectures", None):
        purpose = "lm"  # the format names no class, and is made for language models
    chosen = model_class(config, purpose, trust_remote_code=options["trust_remote_code"])
    if "gguf_file" in options:
        settings = unpacked()
        options = options | ({} if settings is None else {"quantization_config": settings})
    else:
        options = options | {"use_safetensors": True}
    with silent_unpacking():
        model, info = chosen.from_pretrained(place, dtype=dtype, output_loading_info=True, **options)
    if "gguf_file" in options:
        forget_quantization(model)
    require_trained(name, model, info["missing_keys"], purpose)
    return model


def _tokenizer(source: Source, options: dict[str, Any]) -> Any:
    """The tokenizer, or None for a checkpoint that comes without one."""
    if source.local and "gguf_file" not in options and not has_tokenizer(Path(source.place)):
        return None
    try:
        return transformers.AutoTokenizer.from_pretrained(source.place, **options)
    except OSError:
        if source.local:
            raise
        return None


def _dtype(dtype: str | torch.dtype) -> Any:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise unknown_name("dtype", name, DTYPES)
    return name if name == "auto" else getattr(torch, name)


def _device(device: str | torch.device) -> torch.device:
    try:
        found = torch.device(device)
        if found.type == "meta":
            raise UsageError("The device 'meta' holds no numbers.", "Use cpu, or a device that torch sees.")
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        cause = f"The device {str(device)!r} cannot be used: {str(error).splitlines()[0]}"
        raise UsageError(cause, "Use cpu, or a device that torch sees.") from error
    return found


def _on_device(model: Any, device: torch.device) -> Any:
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        remedy = "Use --dtype bfloat16, or --device cpu."
        raise CheckpointError(f"The model does not fit into the memory of {device}.", remedy) from error
