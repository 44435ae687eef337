"""Stored maps are drawn by the real bertviz and circuitsvis, straight from the safetensors file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from headlab.report.interchange import to_bertviz, to_circuitsvis
from headlab.runs.maps import load_maps, save_maps

ALL = [("encoder", layer, head) for layer in range(2) for head in range(3)]
TOKENS = ["[CLS]", "a", "b"]


def _parameters(html: str) -> dict:
    """What bertviz hands to its scripts."""
    return json.loads(re.search(r"params = (\{.*?\});", html, re.S)[1])


@pytest.fixture
def stored(tmp_path: Path, fake: SimpleNamespace) -> Path:
    save_maps(tmp_path, fake.maps(TOKENS, ALL))
    return tmp_path


def test_bertviz_draws_the_tensors_of_the_file_unchanged(stored: Path) -> None:
    bertviz = pytest.importorskip("bertviz", reason="bertviz is not installed")
    tensors = load_file(stored / "maps.safetensors")
    listing = json.loads((stored / "maps.json").read_text())
    layers = [tensors[entry["tensor"]] for entry in listing["maps"]]
    assert [tuple(layer.shape) for layer in layers] == [(1, 3, 3, 3)] * 2
    html = bertviz.head_view(layers, listing["sides"][0]["tokens"], html_action="return").data
    (shown,) = _parameters(html)["attention"]
    expected = [np.stack([m.weights for m in load_maps(stored) if m.layer == layer]) for layer in range(2)]
    np.testing.assert_allclose(np.array(shown["attn"]), np.stack(expected), atol=1e-6)
    assert shown["left_text"] == TOKENS


def test_bertviz_draws_encoder_decoder_and_cross_attention(tmp_path: Path, fake: SimpleNamespace) -> None:
    bertviz = pytest.importorskip("bertviz", reason="bertviz is not installed")
    heads = [(0, 0), (0, 1), (1, 0), (1, 1)]
    maps = [
        *fake.maps(["s", "t"], [("encoder", *h) for h in heads]),
        *fake.maps(["x", "y", "z"], [("decoder", *h) for h in heads]),
        *fake.maps(["x", "y", "z"], [("cross", *h) for h in heads], keys=["s", "t"]),
    ]
    found = {
        name: [torch.from_numpy(a) for a in value] if "attention" in name else value
        for name, value in to_bertviz(maps).items()
    }
    for view in (bertviz.head_view, bertviz.model_view):
        drawn = {part["name"]: part for part in _parameters(view(**found, html_action="return").data)["attention"]}
        np.testing.assert_allclose(np.array(drawn["Cross"]["attn"])[1, 1], maps[11].weights, atol=1e-6)
        assert (drawn["Cross"]["left_text"], drawn["Cross"]["right_text"]) == (["x", "y", "z"], ["s", "t"])


def test_circuitsvis_draws_the_tensors_of_the_file(stored: Path) -> None:
    attention = pytest.importorskip("circuitsvis.attention", reason="circuitsvis is not installed")
    html = str(attention.attention_heads(**to_circuitsvis(load_maps(stored))))
    shown = json.loads(re.search(r"AttentionHeads,\s*(\{.*\})\s*\)", html, re.S)[1])
    tensors = load_file(stored / "maps.safetensors")
    np.testing.assert_allclose(np.array(shown["attention"])[3:], tensors["text0.encoder.1"][0].float(), atol=1e-6)
    assert shown["tokens"] == TOKENS and shown["attentionHeadNames"][4] == "L1H1"
