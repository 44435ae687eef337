"""Every task under head masks and gates: effects are seen in all its rows, and end with the mask."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from headlab.attention.heads import Heads
from headlab.base.masks import HeadMask
from headlab.tasks import task


@pytest.fixture(params=["lm", "minimal-pairs", "classification", "probe"])
def judged(request, words, tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [
        {
            "text": f"w{place % 2} {words(4 + place % 3, place)}",
            "label": place % 2,
            "sentence_good": words(5 + place % 4, place),
            "sentence_bad": words(6 + place % 2, 100 + place),
        }
        for place in range(12)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    source = {"classification": "classifier", "probe": "encoder"}.get(request.param, "llama")
    options = {"max_length": 12} if request.param == "lm" else {}
    return task(request.param, request.getfixturevalue(source), data=path, batch_size=5, **options)


def test_a_mask_changes_every_example_and_ends(judged):
    heads = Heads(judged.model)
    before = judged.evaluate().examples
    with heads.masked(HeadMask.removing("L0H1,L1H2", like=heads)):
        during = judged.evaluate().examples
    after = judged.evaluate().examples
    assert after.equals(before)
    assert ((during["loss"] - before["loss"]).abs() > 1e-6).all()
    if judged.name == "minimal-pairs":
        assert ((during["nll"] - before["nll"]).abs() > 1e-6).all()
        assert ((during["nll_bad"] - before["nll_bad"]).abs() > 1e-6).all()


def test_gate_gradients_come_one_per_example_and_equal_differences(judged):
    heads = Heads(judged.model)
    found = np.concatenate(list(heads.gradients(judged.batches("report"), judged.losses)))
    assert found.shape == (len(judged.split("report")), 8)
    # The gate of L1H2 moved by hand: its slice is scaled at the input of the output projection.
    site = next(site for site in heads.sites if site.layer == 1)
    step, moved = 1e-2, []
    for gate in (1 + step, 1 - step):

        def scale(module, arguments, gate=gate):
            entering = arguments[0].clone()
            entering[..., 2 * site.value_dim : 3 * site.value_dim] *= gate
            return (entering, *arguments[1:])

        hook = site.projection.register_forward_pre_hook(scale)
        with torch.no_grad():
            batches = judged.batches("report")
            moved.append(torch.cat([judged.losses(judged.network, batch) for batch in batches]).double().numpy())
        hook.remove()
    assert found[:, 6] == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=2e-2, abs=2e-4)
