"""The script that fine-tunes a classifier: it learns, continues after a stop with the same weights, and is loadable."""

from __future__ import annotations

import sys

import pytest
import torch
from safetensors.torch import load_file

import headlab
from headlab.base.errors import UsageError
from headlab.runs.meta import read_meta
from scripts.experiments.prune_sst2 import finetune as script


@pytest.fixture
def options(tiny_classifier, tmp_path, monkeypatch):
    """Arguments for an output folder: 32 texts whose first word tells the label, 8 steps in all, saved every 2."""

    def made(out: str, *more: str):
        data = tmp_path / "texts.tsv"
        lines = [
            f"{'red green'.split()[i % 2]} cat {'dog ' * (i // 2 % 4)}\t{'bad good'.split()[i % 2]}" for i in range(32)
        ]
        data.write_text("\n".join(lines) + "\n", encoding="utf-8")
        given = [
            "--model",
            str(tiny_classifier),
            "--train",
            str(data),
            "--dev",
            str(data),
            "--out",
            str(tmp_path / out),
            "--epochs",
            "2",
            "--batch-size",
            "8",
            "--learning-rate",
            "0.01",
            "--save-every",
            "2",
            "--max-length",
            "32",
            *more,
        ]
        monkeypatch.setattr(sys, "argv", ["finetune.py", *given])
        return script.arguments()

    return made


def test_a_stopped_training_ends_with_the_weights_of_an_undisturbed_one(options, monkeypatch):
    whole = options("whole")
    script.finetune(whole)
    stopped, save, saved = options("stopped"), script.save, []

    def stop_after_two(*arguments):
        save(*arguments)
        saved.append(1)
        if len(saved) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(script, "save", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        script.finetune(stopped)
    monkeypatch.setattr(script, "save", save)
    torch.manual_seed(77)  # what else the process draws does not matter
    script.finetune(options("stopped"))
    first, second = (load_file(o.out / "model.safetensors") for o in (whole, stopped))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    losses = [read_meta(o.out)["notes"]["losses"] for o in (whole, stopped)]
    assert len(losses[0]) == 8 and losses[0] == losses[1]
    assert not list(stopped.out.glob("training*"))


def test_what_it_saves_is_a_classifier_that_has_learned(options):
    made = options("made", "--epochs", "10", "--learning-rate", "0.002")
    script.finetune(made)
    task = headlab.task("classification", model=str(made.out), data=made.dev)
    notes = read_meta(made.out)["notes"]
    assert task.evaluate().values["accuracy"] == pytest.approx(notes["dev"]["accuracy"]) and notes["dev"]["n"] == 32
    assert notes["dev"]["accuracy"] > 0.9 > 0.8 > notes["losses"][0]
    assert task.network.config.id2label == {0: "bad", 1: "good"}
    with pytest.raises(UsageError, match="already holds a classifier"):
        script.finetune(made)


def test_other_settings_do_not_continue_a_stopped_training(options, monkeypatch):
    save = script.save
    monkeypatch.setattr(script, "save", lambda *a: (save(*a), (_ for _ in ()).throw(KeyboardInterrupt)))
    with pytest.raises(KeyboardInterrupt):
        script.finetune(options("out"))
    with pytest.raises(UsageError, match=r"another training; it differs in learning_rate \(0.5 now, 0.01 there\)"):
        script.finetune(options("out", "--learning-rate", "0.5"))
