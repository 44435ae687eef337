"""Maps on request: the same as eager's, of the chosen layers and heads only, in the order asked for."""

from __future__ import annotations

import numpy as np
import pytest

from headlab.attention.heads import Heads
from headlab.base.errors import UsageError
from tests.support.reference import eager_maps, sample_batches
from tests.support.tiny_models import FAMILIES, tiny_model


@pytest.mark.parametrize("name", FAMILIES)
def test_maps_equal_eager_maps(name: str) -> None:
    model = tiny_model(name)
    heads = Heads(model)
    for batch in (sample_batches(name)[0], sample_batches(name, "left")[0]):
        maps, expected = heads.capture(batch), eager_maps(model, batch, name)
        assert maps.keys() == expected.keys() == set(heads.heads_per_layer)
        for key, found in maps.items():
            tokens = batch.source if key[0] == "encoder" or batch.target is None else batch.target
            assert found.shape == expected[key].shape and str(found.dtype) == "torch.float32"
            rows = tokens.valid.numpy()
            mine, theirs = np.moveaxis(found.numpy(), 1, 2)[rows], np.moveaxis(expected[key], 1, 2)[rows]
            np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_chosen_layers() -> None:
    heads = Heads(tiny_model("t5"))
    batch = sample_batches("t5")[0]
    whole, part = heads.capture(batch), heads.capture(batch, layers=[1])
    assert set(part) == {("encoder", 1), ("decoder", 1), ("cross", 1)}
    assert all(part[key].equal(whole[key]) for key in part)


def test_chosen_heads_in_their_order() -> None:
    heads = Heads(tiny_model("bert"))
    batch = sample_batches("bert")[0]
    whole = heads.capture(batch)
    part = heads.capture(batch, heads=[("encoder", 1, 3), ("encoder", 0, 2), ("encoder", 1, 0)])
    assert part["encoder", 1].equal(whole["encoder", 1][:, [3, 0]])
    assert part["encoder", 0].equal(whole["encoder", 0][:, [2]])


def test_heads_and_layers_together_keep_what_is_in_both() -> None:
    heads = Heads(tiny_model("bert"))
    batch = sample_batches("bert")[0]
    part = heads.capture(batch, layers=[1], heads=[("encoder", 0, 2), ("encoder", 1, 1)])
    assert set(part) == {("encoder", 1)} and part["encoder", 1].shape[1] == 1


def test_what_does_not_exist_is_refused() -> None:
    heads = Heads(tiny_model("bert"))
    batch = sample_batches("bert")[0]
    with pytest.raises(UsageError, match="layer 2"):
        heads.capture(batch, layers=[0, 2])
    with pytest.raises(UsageError, match="L0H9"):
        heads.capture(batch, heads=[("encoder", 0, 9)])


def test_captured_maps_do_not_change_afterwards() -> None:
    heads = Heads(tiny_model("bert"))
    batch = sample_batches("bert")[0]
    maps = heads.capture(batch)
    before = {key: value.clone() for key, value in maps.items()}
    heads.capture(sample_batches("bert", lengths=(12, 12, 12))[0])
    assert all(maps[key].equal(before[key]) for key in maps)
