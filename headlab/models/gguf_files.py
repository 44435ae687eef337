"""GGUF files: checked, and opened as plain float models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headlab.base.errors import CheckpointError
from headlab.models.packages import require_packages

MAGIC = b"GGUF"


def check_gguf(path: Path) -> None:
    """Raise CheckpointError for a file that is missing, is no GGUF, or cannot be read for want of a package."""
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}.", "Give the path of a .gguf file.")
    with path.open("rb") as file:
        start = file.read(4)
    if start != MAGIC:
        found = "is empty" if not start else f"starts with {start!r}, not with {MAGIC!r}"
        raise CheckpointError(f"{path} is not a GGUF file: it {found}.", "Download or export it again.")
    require_packages("Reading a GGUF file", ("gguf", "accelerate"))


def unpacked() -> Any:
    """Quantization settings under which transformers unpacks every weight; None where it always does."""
    try:
        from transformers import GgufConfig
    except ImportError:
        return None
    return GgufConfig(dequantize=True)


def forget_quantization(model: Any) -> None:
    """Make a model unpacked from GGUF an ordinary one: it is plain floats, yet transformers refuses to save it."""
    for holder, names in ((model, ("hf_quantizer", "quantization_method")), (model.config, ("quantization_config",))):
        for name in names:
            if name in vars(holder):
                delattr(holder, name)
    model.is_quantized = False


@contextmanager
def silent_unpacking() -> Iterator[None]:
    """Without the progress bar of transformers' GGUF reader, which no setting switches off."""
    from transformers import modeling_gguf_pytorch_utils as reader

    bar = getattr(reader, "tqdm", None)
    if bar is None:
        yield
        return
    reader.tqdm = lambda items, **_: items
    try:
        yield
    finally:
        reader.tqdm = bar
