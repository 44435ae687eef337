"""Distances between heads: identities, plain loops, and structure that was put there."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon

from headlab.attention.heads import Heads
from headlab.attention.observe.similarity import head_distances, random_texts
from headlab.base.errors import UsageError
from headlab.runs.similarity import clusters, layers_hold_together, layout
from tests.support.planted_maps import at_offset, everywhere, planted, texts_of
from tests.support.reference import sample_batches
from tests.support.tiny_models import VOCABULARY, tiny_model


def test_divergence_is_symmetric_bounded_and_zero_for_a_head_and_itself() -> None:
    heads = Heads(planted([at_offset(-1), at_offset(-1), at_offset(-2), everywhere], causal=False))
    found = head_distances(heads, texts_of(20)).to_numpy()
    np.testing.assert_allclose(found, found.T)
    np.testing.assert_allclose(np.diag(found), 0)
    assert found[0, 1] < 1e-9 and found.max() <= math.log(2)
    assert found[0, 2] > 0.6  # hardly any row shares a key


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_against_scipy(name: str) -> None:
    """JS with the natural logarithm, rows smoothed as in Clark et al.'s code: .999 p + .001 / n."""
    heads, batches = Heads(tiny_model(name)), sample_batches(name)
    found = head_distances(heads, batches)
    total, count = np.zeros(found.shape), 0
    for batch in batches:
        maps = np.concatenate([each.numpy() for each in heads.capture(batch).values()], 1)
        for row, valid in enumerate(batch.source.valid.numpy()):
            real = maps[row][:, valid][:, :, valid]
            smooth = 0.999 * real + 0.001 / real.shape[-1]
            for i in range(len(real)):
                for j in range(len(real)):
                    total[i, j] += sum(jensenshannon(p, q) ** 2 for p, q in zip(smooth[i], smooth[j], strict=True))
            count += int(valid.sum())
    np.testing.assert_allclose(found.to_numpy(), total / count, atol=1e-6)


def line(values: list[float], layers: list[int]) -> pd.DataFrame:
    index = pd.MultiIndex.from_tuples(
        [("encoder", layer, head) for head, layer in enumerate(layers)], names=["kind", "layer", "head"]
    )
    place = np.array(values)
    return pd.DataFrame(np.abs(place[:, None] - place), index=index, columns=index)


def test_scaling_recovers_an_order_on_a_line() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 5.0, 8.0]
    found = layout(line(values, [0] * 6)).to_numpy()
    gaps = np.linalg.norm(found[:, None] - found, axis=-1)
    np.testing.assert_allclose(gaps, line(values, [0] * 6).to_numpy(), atol=0.05)


def test_clusters_are_found() -> None:
    found = clusters(line([0.0, 0.1, 5.0, 5.1, 9.0], [0] * 5), 3).tolist()
    assert found[0] == found[1] != found[2] == found[3] != found[4]
    with pytest.raises(UsageError):
        clusters(line([0.0, 1.0], [0, 0]), 3)


def test_layers_that_hold_together_and_layers_that_do_not() -> None:
    together = layers_hold_together(line([0, 0.1, 0.2, 5, 5.1, 5.2, 9, 9.1, 9.2], [0, 0, 0, 1, 1, 1, 2, 2, 2]))
    assert together["within"] < together["between"] and together["p"] < 0.01
    apart = layers_hold_together(line([0, 5, 9, 0.1, 5.1, 9.1], [0, 0, 0, 1, 1, 1]))
    assert apart["p"] > 0.5
    with pytest.raises(UsageError):
        layers_hold_together(line([0, 1], [0, 1]))


def test_the_control_keeps_all_but_the_words() -> None:
    batches = sample_batches("bert")
    made = random_texts(batches, vocabulary=VOCABULARY)
    for before, after in zip(batches, made, strict=True):
        words = before.source.valid & ~before.source.special & ~before.source.separator
        assert (before.source.ids == after.source.ids)[~words].all()
        assert not (before.source.ids == after.source.ids)[words].all()
        assert (after.inputs["input_ids"] == after.source.ids).all()


def test_kinds_are_not_compared_with_each_other() -> None:
    heads = Heads(tiny_model("bart"))
    with pytest.raises(UsageError, match="cross"):
        head_distances(heads, sample_batches("bart"))
    assert set(head_distances(heads, sample_batches("bart"), kind="cross").index.get_level_values("kind")) == {"cross"}
