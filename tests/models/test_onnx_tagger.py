"""Weights are read out of an ONNX graph as torch would hold them."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

from headlab.models.demo.onnx_tagger import graph_weights  # noqa: E402

GENERATOR = np.random.default_rng(0)


def tensor(name: str, array: np.ndarray):
    return numpy_helper.from_array(array, name)


def graph(nodes: list, tensors: list):
    return helper.make_graph(nodes, "g", [], [], initializer=tensors)


def test_a_matrix_is_transposed_and_named_after_its_module() -> None:
    matrix = GENERATOR.normal(size=(3, 5)).astype(np.float32)
    bias = np.ones(5, dtype=np.float32)
    node = helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["y"], name="/layer.0/q_lin/MatMul")
    found = graph_weights(graph([node], [tensor("onnx::MatMul_7", matrix), tensor("layer.0.q_lin.bias", bias)]))
    assert set(found) == {"layer.0.q_lin.weight", "layer.0.q_lin.bias"}
    assert found["layer.0.q_lin.weight"].shape == (5, 3) and found["layer.0.q_lin.weight"].flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(found["layer.0.q_lin.weight"], matrix.T)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_int8_values_become_floats_per_tensor_and_per_slice(axis: int | None) -> None:
    values = GENERATOR.integers(-128, 128, size=(4, 6)).astype(np.int8)
    size = 1 if axis is None else values.shape[axis]
    scale = GENERATOR.uniform(0.1, 1, size=size).astype(np.float32)
    zero = GENERATOR.integers(-5, 5, size=size).astype(np.int8)
    scale, zero = (scale[0], zero[0]) if axis is None else (scale, zero)
    options = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["floats"], **options),
        helper.make_node("Gather", ["floats", "ids"], ["y"], name="/embeddings/word/Gather"),
    ]
    found = graph_weights(
        graph(nodes, [tensor("w", values), tensor("s", np.array(scale)), tensor("z", np.array(zero))])
    )
    expected = np.empty(values.shape, dtype=np.float32)
    for row in range(4):
        for column in range(6):
            place = row if axis == 0 else column
            one_scale, one_zero = (scale, zero) if axis is None else (scale[place], zero[place])
            expected[row, column] = (float(values[row, column]) - float(one_zero)) * one_scale
    np.testing.assert_allclose(found["embeddings.word.weight"], expected, rtol=1e-6)


def test_products_of_activations_are_no_weights() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["quantized", "s"], ["floats"]),
        helper.make_node("MatMul", ["x", "floats"], ["y"], name="/layer.0/attention/MatMul"),
    ]
    assert graph_weights(graph(nodes, [tensor("s", np.array(0.5, dtype=np.float32))])) == {}
