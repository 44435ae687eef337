"""The tasks on the demo checkpoints and the package's own texts."""

from __future__ import annotations

import math

import pytest
import torch

from headlab.base.errors import CheckpointError
from headlab.tasks import task

pytestmark = pytest.mark.demo


def test_a_probe_on_minilm_learns_the_demo_sentences():
    judged = task("probe", "demo:minilm")
    found = judged.evaluate("report")
    assert len(found) == 160 and found.values["accuracy"] > 0.9
    assert judged.signature()["data"] == "demo:sentences"


def test_minilm_has_no_head_for_a_language_model():
    with pytest.raises(CheckpointError, match="no weights for"):
        task("lm", "demo:minilm")


@pytest.mark.slow
def test_smollm2_scores_as_transformers_own_loss_says():
    judged = task("minimal-pairs", "demo:smollm2", limit=16)
    found = judged.evaluate()
    tokenizer, model = judged.checkpoint.tokenizer, judged.checkpoint.model
    ids = {place: row for batch in judged.batches() for place, row in zip(batch.examples[::2], batch.source.ids[::2])}
    assert found.values["accuracy"] > 0.6
    for place in list(ids)[:3]:
        text = tokenizer.decode(ids[place], skip_special_tokens=True)
        row = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            loss = model(input_ids=row, labels=row).loss.item()  # mean over all tokens but the first
        assert found.examples.loc[place, "nll"] == pytest.approx(loss * (row.shape[1] - 1), rel=1e-4)
    windows = task("lm", judged.checkpoint, limit=2).evaluate()
    assert windows.examples["tokens"].tolist() == [127, 127]
    assert 15 < windows.values["perplexity"] < 80 and not math.isnan(windows.values["next_token_accuracy"])
