"""Tokens are readable whatever tokenizer they come from; maps come back as they were stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from headlab.base.errors import DataError
from headlab.runs.maps import AttentionMap, load_maps, save_maps
from headlab.runs.readable_tokens import readable_tokens


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        (
            ["The", "Ġcaf", "Ã©", "Ċ", "ĠĠĠ", "Ġ", "<|endoftext|>"],
            ["The", "caf", "é", "↵", "␣×3", "␣", "<|endoftext|>"],
        ),
        (["[CLS]", "un", "##tie", "##", "[SEP]"], ["[CLS]", "un", "tie", "##", "[SEP]"]),
        (["▁Hello", "▁", "world", "<0x0A>", "</s>"], ["Hello", "␣", "world", "↵", "</s>"]),
        (["low", "er</w>"], ["low", "er"]),
        (["Ġanni", "ñ", "鳥"], ["Ġanni", "ñ", "鳥"]),  # Maltese in a vocabulary that is not byte-level: 鳥 is no byte
        (["", "\x00", "\ud800", "\u202eabc", "a\tb"], ["∅", "�", "�", "�abc", "a␣b"]),
        (["<script>alert(1)</script>", "$x$", "🙂"], ["<script>alert(1)</script>", "$x$", "🙂"]),
    ],
)
def test_tokens_are_readable(tokens: list[str], shown: list[str]) -> None:
    assert readable_tokens(tokens) == shown


def test_long_tokens_are_cut() -> None:
    assert readable_tokens(["a" * 40], limit=5) == ["aaaa…"]


def test_maps_come_back(tmp_path: Path) -> None:
    weights = np.array([[1, 0], [0.25, 0.75]])
    stored = [
        AttentionMap("decoder", 3, 1, 0, weights, ["<script>", "Ġb"], ["<script>", "Ġb"]),
        AttentionMap("cross", 0, 2, 4, weights[:1], ["q"], ["k1", "k2"]),
    ]
    save_maps(tmp_path, stored)
    for found, expected in zip(load_maps(tmp_path), stored, strict=True):
        assert (found.kind, found.layer, found.head, found.text) == (
            expected.kind,
            expected.layer,
            expected.head,
            expected.text,
        )
        np.testing.assert_array_equal(found.weights, expected.weights.astype(np.float16))
        assert list(found.key_tokens) == list(expected.key_tokens)
    assert load_maps(tmp_path / "elsewhere") == []


def test_shapes_must_fit_and_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\(2, 2\) does not fit .* \(2, 3\)"):
        AttentionMap("encoder", 0, 0, 0, np.eye(2), ["a", "b"], ["a", "b", "c"])
    save_maps(tmp_path, [AttentionMap("encoder", 0, 0, 0, np.eye(1), ["a"], ["a"])])
    (tmp_path / "maps.safetensors").write_bytes(b"broken")
    with pytest.raises(DataError, match="cannot be read"):
        load_maps(tmp_path)


def test_maps_of_a_layer_share_a_tensor_and_texts_are_named_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stored = [
        AttentionMap("encoder", layer, head, text, rng.dirichlet(np.ones(3), 3), list("abc"), list("abc"))
        for text in range(2)
        for layer in range(2)
        for head in (1, 4)
    ]
    save_maps(tmp_path, [*stored, stored[-1]])  # the same head twice cannot share a tensor
    tensors = load_file(tmp_path / "maps.safetensors")
    assert [tensors[f"text{t}.encoder.{i}"].shape for t in (0, 1) for i in (0, 1)] == [(1, 2, 3, 3)] * 4
    listing = json.loads((tmp_path / "maps.json").read_text())
    assert len(listing["sides"]) == 1 and len(tensors) == len(listing["maps"]) == 5
    assert [(m.text, m.layer, m.head) for m in load_maps(tmp_path)][-3:] == [(1, 1, 1), (1, 1, 4), (1, 1, 4)]


def test_maps_of_the_first_schema_are_read(tmp_path: Path) -> None:
    (tmp_path / "maps.safetensors").write_bytes(save({"0": np.eye(2, dtype=np.float16)}))
    entry = {
        "tensor": "0",
        "kind": "cross",
        "layer": 3,
        "head": 5,
        "text": 1,
        "query_tokens": ["a", "b"],
        "key_tokens": ["c", "</s>"],
        "key_special": [1],
    }
    (tmp_path / "maps.json").write_text(json.dumps({"schema": 1, "maps": [entry]}))
    (found,) = load_maps(tmp_path)
    assert (found.kind, found.layer, found.head, found.text, found.key_special) == ("cross", 3, 5, 1, [False, True])
    np.testing.assert_array_equal(found.weights, np.eye(2))
