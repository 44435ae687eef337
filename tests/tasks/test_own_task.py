"""A task of one's own, written against the contract alone, is opened and judged like one that comes with headlab."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headlab
from headlab.base.errors import UsageError
from headlab.tasks import Task, TextTask, evaluate, task
from headlab.testing import check_task


class Lengths:
    """How large the features of a text are; inherits from nothing."""

    name, title, text, purpose = "lengths", "Lengths", "Makes features.", "features"
    definition = loss = "mean square of the last hidden states"
    source, demo_models, metrics = "this test", (), ("loss",)

    def __init__(self, checkpoint, words="w1 w2 w3"):
        self.model, self.network = checkpoint, checkpoint.model
        self.texts = [f"{words} w{number}" for number in range(8)]

    def split(self, name):
        ids = np.arange(len(self.texts))
        if name not in ("all", "select", "report"):
            raise UsageError(f"There is no split {name}.")
        return {"all": ids, "select": ids[:4], "report": ids[4:]}[name]

    def batches(self, split="all", examples=None):
        for i in self.split(split):
            if examples is None or i in examples:
                (batch,) = headlab.text_batches(self.model, [self.texts[i]])
                yield headlab.Batch(batch.inputs, batch.source, examples=(int(i),))

    def losses(self, model, batch):
        return model(**batch.inputs).last_hidden_state.square().mean(dim=(1, 2))

    def statistics(self, model, batch):
        losses = self.losses(model, batch)
        return {"loss": losses, "examples": torch.ones_like(losses)}

    def evaluate(self, split="all", progress=None):
        return evaluate(self, split, progress)

    def signature(self):
        return {"task": self.name, "texts": self.texts}


def test_a_class_of_ones_own_is_opened_and_judged(encoder):
    own = task(Lengths, encoder, words="w5 w6")
    assert own.texts[0] == "w5 w6 w0" and own.model is encoder
    check_task(own)
    found = own.evaluate("report")
    assert len(found) == 4 and found.values["loss"] == pytest.approx(found.examples["loss"].mean())


def test_what_commands_always_give_a_task_may_stay_at_its_default(encoder):
    assert task(Lengths, encoder, data=None, limit=None, batch_size=32, seed=0, split="50:50").texts
    with pytest.raises(UsageError, match="Unknown option of the task 'lengths': 'limit'"):
        task(Lengths, encoder, limit=3)
    with pytest.raises(UsageError, match="Did you mean 'words'"):
        task(Lengths, encoder, word="w1")


def test_a_sweep_of_a_task_of_ones_own_fills_a_run_folder(encoder, tmp_path):
    own = task(Lengths, encoder)
    heads = headlab.Heads(encoder)
    curve = headlab.sweep(heads, own, headlab.order(headlab.score("random", heads, own)), [0, 2], run=tmp_path / "run")
    assert set(curve["metric"]) == {"loss"}


def test_tasks_of_headlab_follow_the_written_contract():
    members = [name for name in [*vars(Task), *Task.__annotations__] if not name.startswith("_")]
    assert len(members) == 18
    instance = {"metrics", "name", "title", "text", "definition", "source", "loss", "purpose"}
    assert [name for name in members if name not in instance and not hasattr(TextTask, name)] == []


def test_what_is_no_task_is_refused(encoder):
    with pytest.raises(UsageError, match="is no task"):
        task(dict, encoder)


def test_what_is_printed_of_a_checkpoint_and_a_batch_is_one_short_line(encoder):
    (batch,) = headlab.text_batches(encoder, ["w1 w2", "w1 w2 w3"])
    assert repr(batch) == "Batch(2 examples, source Tokens(2 rows, 5 wide, 9 tokens))"
    assert repr(encoder) == "Checkpoint('tiny': BertModel, 64 tokens)"
