"""The DistilBERT grammar tagger, from its int8 ONNX graph to safetensors of transformers' own class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
MAX_TOKENS = 512


def convert_tagger(package: Path, folder: Path) -> None:
    """Write config, float32 weights and tokenizer of the tagger in `package` into an empty folder."""
    import onnx
    import torch
    from transformers import DistilBertConfig, DistilBertForTokenClassification, PreTrainedTokenizerFast

    from headlab.models.notices import quiet

    tags = json.loads((package / "tag_vocab.json").read_text(encoding="utf-8"))["tags"]
    weights = graph_weights(onnx.load(str(package / "tagger.onnx")).graph)
    config = DistilBertConfig(
        vocab_size=len(weights["distilbert.embeddings.word_embeddings.weight"]),
        id2label=dict(enumerate(tags)),
        label2id={tag: number for number, tag in enumerate(tags)},
        pad_token_id=0,
    )
    model = DistilBertForTokenClassification(config)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, strict=True)
    with quiet():
        model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(package / "tokenizer.json"), model_max_length=MAX_TOKENS, **SPECIAL_TOKENS
    )
    tokenizer.backend_tokenizer.no_truncation()  # the package cuts at 128 tokens
    tokenizer.save_pretrained(folder)


def graph_weights(graph: Any) -> dict[str, np.ndarray]:
    """Parameter name -> float32 array, as a torch module would name and shape them.

    Biases and layer norms keep their names in the graph. A matrix is found where it is used, by a node named after
    its module: a MatMul holds it as (inputs, outputs), the transpose of torch's; a Gather looks embeddings up in it.
    """
    constants = Constants(graph)
    found = {name: array for name, array in constants.arrays.items() if name.endswith((".weight", ".bias"))}
    for node in graph.node:
        if node.op_type not in ("MatMul", "Gather"):
            continue
        matrix = constants.value(node.input[1] if node.op_type == "MatMul" else node.input[0])
        if matrix is not None and matrix.ndim == 2:
            module = node.name.strip("/").rpartition("/")[0].replace("/", ".")
            found[f"{module}.weight"] = matrix.T if node.op_type == "MatMul" else matrix
    return {name: np.array(array, dtype=np.float32, order="C") for name, array in found.items()}


class Constants:
    """What an ONNX graph knows before it runs, with int8 values turned back into floats."""

    def __init__(self, graph: Any) -> None:
        from onnx import numpy_helper

        self.arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._maker = {output: node for node in graph.node for output in node.output}
        for node in graph.node:
            if node.op_type == "Constant":
                self.arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)

    def value(self, name: str) -> np.ndarray | None:
        """The constant of that name, or None where it depends on the input."""
        if name in self.arrays:
            return self.arrays[name]
        node = self._maker.get(name)
        if node is None or node.op_type not in ("Transpose", "DequantizeLinear"):
            return None
        inputs = [self.value(each) for each in node.input]
        if any(each is None for each in inputs):
            return None
        return inputs[0].T if node.op_type == "Transpose" else _floats(node, *inputs)  # type: ignore[union-attr, arg-type]


def _floats(node: Any, values: np.ndarray, scale: np.ndarray, zero: np.ndarray | int = 0) -> np.ndarray:
    """(value - zero point) x scale, both per tensor or per slice of the node's axis (ONNX's default is 1)."""
    if np.ndim(scale) == 1 and np.size(scale) > 1:
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
        shape = [1] * values.ndim
        shape[axis] = -1
        scale, zero = np.reshape(scale, shape), np.reshape(zero, shape) if np.size(zero) > 1 else zero
    return (values.astype(np.float32) - np.asarray(zero, dtype=np.float32)) * scale
