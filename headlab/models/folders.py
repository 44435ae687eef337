"""Folders of weights: what is refused before anything is read, and the hash that identifies them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from headlab.base.errors import CheckpointError

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.*", "*.model", "source.spm", "tokenizer.*")


def check_folder(folder: Path) -> None:
    """Raise CheckpointError for a folder that is no checkpoint, or whose weights are not in safetensors."""
    config = folder / "config.json"
    if not config.is_file():
        raise CheckpointError(
            f"The folder {folder} has no config.json.",
            "Name a folder that save_pretrained wrote, or a .gguf file.",
        )
    try:
        if not isinstance(json.loads(config.read_text(encoding="utf-8")), dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        raise CheckpointError(f"{config} is not a model's configuration: {error}.", "Save the model again.") from error
    if weights_files(folder):
        return
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"The weights in {folder} are not in safetensors ({', '.join(pickles[:3])}), and pickles can run code.",
            "Convert them where you trust them: load with transformers, then model.save_pretrained(folder).",
        )
    raise CheckpointError(f"The folder {folder} has no weights (*.safetensors).", "Save the model there again.")


def settings_files(folder: Path) -> list[Path]:
    """The files beside the weights on which a model's outputs depend: configuration and tokenizer, sorted by name."""
    named = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
    others = [
        p.name
        for p in folder.iterdir()
        if p.suffix in (".model", ".spm") or p.name in ("vocab.txt", "vocab.json", "merges.txt")
    ]
    return [folder / name for name in sorted({*named, *others}) if (folder / name).is_file()]


def weights_files(folder: Path) -> list[Path]:
    """The safetensors files that transformers reads from a folder, sorted by name."""
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index} is not an index of weights.", "Save the model again.") from error
    missing = sorted(name for name in names if not (folder / name).is_file())
    if missing:
        raise CheckpointError(f"{folder} lacks {', '.join(missing[:3])}.", "Copy the whole folder again.")
    return [folder / name for name in sorted(names)]


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds any file that a tokenizer is read from."""
    return any(path for pattern in TOKENIZER_FILES for path in folder.glob(pattern))


def file_sha256(*files: Path) -> str:
    """SHA-256 of the bytes of one file, or of several one after another."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()
