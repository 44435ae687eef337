"""What a user holds shows itself in a notebook: a model's heads, masks, and maps in the viewer."""

from __future__ import annotations

import html
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from headlab.attention.heads import Heads
from headlab.base import display
from headlab.base.errors import UsageError
from headlab.base.masks import HeadMask
from headlab.models.checkpoint import Checkpoint
from tests.support.reference import sample_batches
from tests.support.tiny_models import tiny_model


def test_heads_show_one_square_each_and_what_was_proven() -> None:
    heads = Heads(tiny_model("t5"))
    shown = heads._repr_html_()
    assert shown.count("<rect") == heads.n_heads and shown.count("<li>proven: ") == len(heads.proofs)
    assert html.escape(repr(heads)) in shown and "<script" not in shown
    assert all(f">{kind}</text>" in shown for kind in ("encoder", "decoder", "cross"))


def test_masks_show_what_is_gone() -> None:
    mask = HeadMask.removing("L0H1,L1H3", like=Heads(tiny_model("bert")))
    assert "6 of 8 heads kept, 2 removed" in mask._repr_html_() and mask._repr_html_().count("<path") == 2


def test_a_checkpoint_shows_what_describes_it() -> None:
    checkpoint = Checkpoint("<b>mine</b>", tiny_model("bert"))
    shown = checkpoint._repr_html_()
    assert "&lt;b&gt;mine&lt;/b&gt;" in shown and shown.count("<tr>") == len(checkpoint.describe())


def test_what_nobody_draws_is_text_and_another_package_may_draw_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(display.Displayed):
        pass

    assert Mine()._repr_html_() is None
    points = {"Mine": [EntryPoint("Mine", "builtins:repr", display.GROUP)]}
    monkeypatch.setattr(display, "entry_points", lambda group, name: points[name])
    assert "Mine object" in str(Mine()._repr_html_())


def test_maps_of_chosen_heads_are_those_of_capture_without_padding() -> None:
    heads = Heads(tiny_model("bert"))
    batches = sample_batches("bert")
    maps = heads.maps(batches, heads="L1H2,L0H3")
    whole = {example: (batch, row) for batch in batches for row, example in enumerate(batch.examples)}
    texts = sorted(whole)
    assert {(m.layer, m.head) for m in maps} == {(1, 2), (0, 3)} and len(maps) == 2 * len(texts)
    for item in maps:
        batch, row = whole[texts[item.text]]
        real = batch.source.valid[row]
        expected = heads.capture(batch)[item.kind, item.layer][row, item.head][real][:, real]
        np.testing.assert_allclose(item.weights, expected, atol=1e-6)
        assert [str(i) for i in batch.source.ids[row][real].tolist()] == item.query_tokens
    assert maps._repr_html_().startswith("<iframe srcdoc=") and len(heads.maps(batches, 1)) == 8
    with pytest.raises(UsageError, match="no head L7H0"):
        heads.maps(batches, heads="L7H0")
