"""Ladders of learned gates as tables, resumed after a kill, and fine-tuning after cuts that leaves no trace."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import headlab
from headlab.attention.heads import Heads
from headlab.base.errors import UsageError
from headlab.base.masks import HeadMask
from headlab.pruning.ladder import ladder
from headlab.pruning.training import Finetuning, finetuned
from headlab.report import figures
from headlab.runs.tables import SWEEP_COLUMNS, load_table
from headlab.scores.gates.settings import Training
from headlab.scores.gates.training import by_layer
from tests.support.killed_ladder import LEVELS, STEPS, climb_ladder
from tests.support.planted_seven import HEADS, planted


def same_ladders(first, second) -> None:
    """Equal in every column but the duration."""
    pd.testing.assert_frame_equal(
        first.curve.drop(columns="seconds"), second.curve.drop(columns="seconds"), check_exact=True, rtol=0, atol=0
    )
    pd.testing.assert_frame_equal(first.gates, second.gates, check_exact=True, rtol=0, atol=0)


@pytest.fixture
def classifier(tiny_classifier, tmp_path):
    """Heads and task of a tiny BERT on 24 texts that begin with a telling word."""
    words = "the a cat dog bird sleeps runs sings".split()
    lines = [f"{('red', 'green')[i % 2]} {' '.join(words[: 2 + i % 6])}\t{('bad', 'good')[i % 2]}" for i in range(24)]
    (tmp_path / "texts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    task = headlab.task("classification", model=str(tiny_classifier), data=str(tmp_path / "texts.tsv"), batch_size=4)
    return Heads(task.model), task


def state_of(model) -> list[torch.Tensor]:
    return [t.detach().clone() for t in (*model.parameters(), *model.buffers())]


# The Pareto table


def test_every_rung_is_judged_with_hard_gates_on_the_other_examples():
    heads, task = planted(n=200)
    curve, gates = ladder(heads, task, levels=[0.0, 0.05], seeds=2, training=Training(steps=60, learning_rate=0.3))
    assert list(curve.columns[: len(SWEEP_COLUMNS)]) == list(SWEEP_COLUMNS)
    assert len(curve) == 2 * 2 * len(task.metrics) and len(gates) == 2 * 2 * 7
    base = task.evaluate("report").examples["loss"].mean()
    for row in curve[curve["metric"] == "loss"].itertuples():
        own = gates[(gates["level"] == row.penalty) & (gates["seed"] == row.seed)]
        gone = [tuple(head) for head in own.loc[~own["kept"], ["kind", "layer", "head"]].to_numpy()]
        assert row.n_removed == len(gone) == 7 - row.n_open and row.n_heads == 7
        with heads.masked(HeadMask.removing(gone, like=heads)):
            value = task.evaluate("report").examples["loss"].mean()
        assert row.value == pytest.approx(value, abs=1e-12) and row.drop == pytest.approx(value - base, abs=1e-12)
        assert row.ci_low <= row.drop <= row.ci_high
        assert (own["kept"] == (own["weight"] > 0)).all()
        assert own["p_open"].to_numpy() == pytest.approx(1 / (1 + np.exp(-own["weight"] - 0.33 * np.log(11))), abs=1e-9)
    assert curve[curve["penalty"] == 0.05]["n_removed"].min() > curve[curve["penalty"] == 0.0]["n_removed"].max()
    figures.pareto(curve, "loss")
    drawn = figures.gate_histogram(gates).axes[0].patches
    for outline, (level, own) in zip(drawn, gates.groupby("level")):
        low = (own["p_open"] < 0.05).mean()
        assert outline.get_gid() == str(level) and outline.get_data().values[0] == pytest.approx(100 * low)
        assert outline.get_data().values.sum() == pytest.approx(100)


def test_gates_at_rest_are_judged_as_they_are():
    heads, task = planted(n=100)
    curve, gates = ladder(heads, task, levels=[0.0], seeds=1, training=Training(steps=1))
    log_alpha = torch.tensor(gates["weight"].to_numpy())
    rest = (torch.sigmoid(log_alpha) * 1.2 - 0.1).clamp(0, 1)
    assert ((rest > 0) & (rest < 1)).any()
    with heads.gate_context(by_layer(heads, rest)):
        expected = task.evaluate("report").examples["loss"].mean()
    assert curve.set_index("metric").loc["loss", "value_soft"] == pytest.approx(expected, abs=1e-12)


def test_exact_k_opens_exactly_k_on_every_rung():
    heads, task = planted(n=100)
    curve, gates = ladder(heads, task, "exact_k", [1, 3, 6, 7], seeds=3, training=Training(steps=3))
    assert (curve["n_open"] == curve["keep"]).all() and (curve["n_removed"] == 7 - curve["keep"]).all()
    assert (gates.groupby(["level", "seed"])["kept"].sum() == [k for k in (1, 3, 6, 7) for _ in range(3)]).all()
    assert (curve[curve["keep"] == 7]["drop"] == 0).all()


def test_a_penalty_that_closes_everything_is_a_row_like_any_other():
    heads, task = planted(n=100)
    curve, _ = ladder(heads, task, levels=[100.0], seeds=1, training=Training(steps=40))
    row = curve.set_index("metric").loc["loss"]
    assert row["n_open"] == 0 and row["n_removed"] == 7
    with heads.masked(HeadMask.removing(list(HEADS.values()), like=heads)):
        assert row["value"] == pytest.approx(task.evaluate("report").examples["loss"].mean())


def test_penalties_by_default_are_multiples_of_the_break_even_price():
    heads, task = planted(n=100)
    curve, _ = ladder(heads, task, seeds=1, training=Training(steps=1))
    losses = []
    for mask in (HeadMask.full(heads), HeadMask.removing(list(HEADS.values()), like=heads)):
        with heads.masked(mask):
            losses.append(task.evaluate("select").examples["loss"].mean())
    ratios = curve["penalty"].unique() / ((losses[1] - losses[0]) / 7)
    assert ratios.tolist() == pytest.approx([0.25, 0.5, 1, 2, 4], rel=5e-3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "hard_concret"}, "Did you mean 'hard_concrete'"),
        ({"levels": []}, "no level"),
        ({"levels": [-0.1]}, "out of range"),
        ({"method": "exact_k", "levels": [2.5]}, "2.5 heads cannot be kept"),
        ({"method": "exact_k", "levels": [8]}, "8 of 7"),
        ({"seeds": 0}, "0 seeds"),
        ({"split": "rest"}, "rest"),
        ({"kinds": ["cross"]}, "no heads of the kind cross"),
        ({"training": Training(steps=0)}, "0 steps"),
    ],
)
def test_what_cannot_be_is_refused_before_any_training(given, words):
    heads, task = planted(n=20)
    task.losses = None
    task.split = lambda name: task.__class__.split(task, name) if name != "rest" else unknown(name)
    with pytest.raises(UsageError, match=words):
        ladder(heads, task, **{"levels": [0.1], **given})


def unknown(name):
    raise UsageError(f"Unknown split {name!r}.")


# Resumed


@pytest.mark.parametrize("method", ["hard_concrete", "exact_k"])
def test_a_finished_ladder_is_read_and_not_trained_again(tmp_path, method):
    first, needed = climb_ladder(tmp_path, method=method)
    second, needed_again = climb_ladder(tmp_path, method=method)
    assert needed == 6 * STEPS and needed_again == 0
    same_ladders(first, second)
    examples = load_table(tmp_path, "examples")
    row = first.curve[first.curve["metric"] == "loss"].iloc[-1]
    assert examples[examples["run"] == row["run"]]["loss"].mean() == pytest.approx(row["value"])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_ladder_loses_the_rung_in_progress_at_most(tmp_path):
    run, out = tmp_path / "run", tmp_path / "table.parquet"
    command = [sys.executable, "-m", "tests.support.killed_ladder", str(run), "0.1", str(out)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)
    deadline = time.time() + 120
    while len(list(run.glob("rows/[!.]*.json"))) < 2 and process.poll() is None and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    finished = len(list(run.glob("rows/[!.]*.json")))
    undisturbed, needed = climb_ladder(None)
    resumed, needed_after = climb_ladder(run)
    assert 2 <= finished < 2 * len(LEVELS) and needed_after == needed - finished * STEPS and not out.exists()
    same_ladders(resumed, undisturbed)


@pytest.mark.parametrize("damage", ["cut short", "empty", "its row is gone", "not a rung"])
def test_damaged_rungs_are_trained_again(tmp_path, damage):
    first, _ = climb_ladder(tmp_path)
    path = sorted(tmp_path.glob("rows/*.json"))[0]
    content = path.read_text()
    if damage == "its row is gone":
        for row in tmp_path.glob("rows/*.parquet"):
            row.unlink()
    else:
        path.write_text({"cut short": content[:40], "empty": "", "not a rung": '{"run": "abc"}'}[damage])
    baseline = load_table(tmp_path, "examples")["run"].iloc[0]
    masks = set(first.curve["run"]) - {baseline}  # rungs that end at the same mask share its evaluation
    again, needed = climb_ladder(tmp_path)
    assert needed == STEPS * (len(masks) if damage == "its row is gone" else 1) and masks
    same_ladders(again, first)


def test_another_training_is_not_taken_for_this_one(tmp_path):
    heads, task = planted(n=60)
    common = {"levels": [0.05], "seeds": 1, "run": tmp_path}
    first = ladder(heads, task, training=Training(steps=2), **common)
    longer = ladder(heads, task, training=Training(steps=50, learning_rate=0.3), **common)
    assert longer.gates["weight"].tolist() != first.gates["weight"].tolist()


def test_the_seeds_of_one_ladder_differ_and_weights_trained_along_come_back(classifier, tmp_path):
    heads, task = classifier
    before = state_of(heads.model)
    how = Training(steps=3, train="all", weights_rate=1e-2, learning_rate=0.5)
    made = ladder(heads, task, levels=[0.001], seeds=2, training=how, run=tmp_path)
    assert all(map(torch.equal, state_of(heads.model), before))
    losses = made.curve[made.curve["metric"] == "loss"]
    assert losses["value"].nunique() == 2 and losses["run"].nunique() == 2
    assert losses["value"].iloc[0] != pytest.approx(losses["baseline"].iloc[0], abs=1e-4)  # judged as trained
    same_ladders(ladder(heads, task, levels=[0.001], seeds=2, training=how, run=tmp_path), made)


# Fine-tuning after a cut


def test_one_step_is_that_of_adam_and_leaves_removed_heads_alone(classifier):
    heads, task = classifier
    mask = HeadMask.removing("L0H1,L1H2", like=heads)
    rate = 1e-3
    batches = list(task.batches("select"))
    batch = batches[np.random.default_rng([0, 0]).permutation(len(batches))[0]]
    before = dict(zip([name for name, _ in heads.model.named_parameters()], state_of(heads.model)))
    with heads.masked(mask):
        loss = task.losses(heads.model, batch).double().mean()
        slopes = torch.autograd.grad(loss, list(heads.model.parameters()), allow_unused=True)
    with finetuned(heads, task, mask, Finetuning(1, rate)) as losses:
        assert losses.tolist() == pytest.approx([loss.item()])
        for (name, now), slope in zip(heads.model.named_parameters(), slopes):
            expected = before[name] if slope is None else before[name] - rate * slope / (slope.abs() + 1e-8)
            assert torch.allclose(now.detach(), expected, atol=2e-7), name
        value = dict(heads.model.named_parameters())["bert.encoder.layer.0.attention.self.value.weight"]
        moved = (value.detach() != before["bert.encoder.layer.0.attention.self.value.weight"]).reshape(4, 8, 32)
        assert moved.any(dim=(1, 2)).tolist() == [True, False, True, True]


def test_fine_tuning_lowers_the_loss_under_the_mask_and_is_undone(classifier):
    heads, task = classifier
    mask = HeadMask.removing("L0H0,L0H1,L1H3", like=heads)
    heads.model.train()
    next(heads.model.parameters()).requires_grad_(False)
    before, flags = state_of(heads.model), [m.training for m in heads.model.modules()]
    plain = task.evaluate("report").values["loss"]
    with heads.masked(mask):
        untuned = task.evaluate("select").values["loss"]
    with finetuned(heads, task, mask, Finetuning(30, 3e-3)):
        tuned = task.evaluate("select").values["loss"]
        assert torch.equal(next(heads.model.parameters()).detach(), before[0])  # frozen ones stay
    assert tuned < untuned - 0.1
    assert all(map(torch.equal, state_of(heads.model), before))
    assert [m.training for m in heads.model.modules()] == flags
    assert all(parameter.grad is None for parameter in heads.model.parameters())
    assert task.evaluate("report").values["loss"] == plain


def test_the_model_comes_back_after_an_exception_with_its_own_gradients(classifier):
    heads, task = classifier
    task.losses(heads.model, next(task.batches("select"))).mean().backward()
    before = state_of(heads.model)
    gradients = [None if p.grad is None else p.grad.clone() for p in heads.model.parameters()]
    with pytest.raises(KeyboardInterrupt), finetuned(heads, task, HeadMask.full(heads), Finetuning(2, 1e-2)):
        raise KeyboardInterrupt
    assert all(map(torch.equal, state_of(heads.model), before))
    for parameter, gradient in zip(heads.model.parameters(), gradients):
        assert (parameter.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(parameter.grad, gradient)


def test_a_frozen_model_and_impossible_settings_are_refused(classifier):
    heads, task = classifier
    mask = HeadMask.removing("L0H0", like=heads)
    for how, words in ((Finetuning(0), "0 steps"), (Finetuning(2, -1.0), "learning rate of -1.0")):
        with pytest.raises(UsageError, match=words), finetuned(heads, task, mask, how):
            pass
    heads.model.requires_grad_(False)
    with pytest.raises(UsageError, match="frozen"), finetuned(heads, task, mask, Finetuning(2)):
        pass


def test_a_sweep_may_fine_tune_after_every_cut(classifier, tmp_path):
    heads, task = classifier
    ranks = pd.Series(np.arange(heads.n_heads, dtype=float), index=heads.index, name="score_made")
    ordering, how, before = headlab.order(ranks), Finetuning(4, 1e-2), state_of(heads.model)
    common = {"budgets": "0,2", "seeds": 1}
    plain = headlab.sweep(heads, task, ordering, run=tmp_path, **common)
    tuned = headlab.sweep(heads, task, ordering, finetuning=how, run=tmp_path, **common)
    assert all(map(torch.equal, state_of(heads.model), before))
    assert tuned["finetuning_steps"].eq(4).all() and "finetuning_steps" not in plain
    assert tuned["baseline"].tolist() == plain["baseline"].tolist()
    by_cell = ["strategy", "budget", "metric"]
    value = tuned.set_index(by_cell)["value"]
    for budget in ("0", "2"):
        mask = HeadMask.removing(ordering.cut(budget), like=heads)
        with finetuned(heads, task, mask, how):
            expected = task.evaluate("report").values["loss"]
        assert value["made", budget, "loss"] == pytest.approx(expected, abs=1e-9)
    assert (value != plain.set_index(by_cell)["value"]).any()
    read = headlab.sweep(heads, task, ordering, finetuning=how, run=tmp_path, **common)
    pd.testing.assert_frame_equal(read, tuned)


# The command line


def command(tiny_classifier, tmp_path, *more: str) -> int:
    from headlab.cli import run

    data = tmp_path / "texts.tsv"
    if not data.exists():
        lines = [f"{'red green'.split()[i % 2]} cat {'dog ' * (i % 4)}\t{'bad good'.split()[i % 2]}" for i in range(16)]
        data.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run(
        [
            "sweep",
            str(tiny_classifier),
            "--task",
            "classification",
            "--data",
            str(data),
            "--quiet",
            "--out",
            str(tmp_path / "run"),
            "--budgets",
            "0,3",
            "--seeds",
            "2",
            *more,
        ]
    )


def test_train_gates_adds_the_rungs_to_the_table(tiny_classifier, tmp_path, capsys):
    options = ["--train", "gates", "--steps", "3", "--penalties", "0.001,500", "--keep", "2"]
    assert command(tiny_classifier, tmp_path, *options) == 0
    assert "every gate closed" not in capsys.readouterr().err
    table = load_table(tmp_path / "run", "sweep")
    rungs = table[(table["metric"] == "loss") & table["strategy"].isin(["hard_concrete", "exact_k"])]
    assert rungs["budget"].tolist() == ["penalty=0.001"] * 2 + ["penalty=500"] * 2 + ["keep=2"] * 2
    assert rungs["seed"].tolist() == [0, 1] * 3 and rungs["n_open"].tolist()[-2:] == [2, 2]
    gates = pd.read_csv(tmp_path / "run" / "gates.csv")
    assert len(gates) == 6 * 8
    files = sorted(path.name for path in (tmp_path / "run" / "rows").iterdir())
    assert command(tiny_classifier, tmp_path, *options) == 0  # resumed: nothing is trained again
    assert sorted(path.name for path in (tmp_path / "run" / "rows").iterdir()) == files
    assert load_table(tmp_path / "run", "sweep").equals(table)
    assert command(tiny_classifier, tmp_path, "--overwrite") == 0
    assert not (tmp_path / "run" / "gates.csv").exists()


@pytest.mark.filterwarnings("ignore:Every gate closed")
def test_gates_are_scores_like_any_other(tiny_classifier, tmp_path, capsys):
    assert command(tiny_classifier, tmp_path, "--scores", "hard_concrete,exact_k") == 0
    heads = load_table(tmp_path / "run", "heads")
    assert heads["score_hard_concrete"].between(0, 1).all() and heads["score_exact_k"].notna().all()
    sweep = load_table(tmp_path / "run", "sweep")
    assert set(sweep["strategy"]) == {"hard_concrete", "exact_k", "random"}


def test_train_all_fine_tunes_after_every_cut_and_is_another_run(tiny_classifier, tmp_path, capsys):
    assert command(tiny_classifier, tmp_path, "--train", "all", "--steps", "2") == 0
    table = load_table(tmp_path / "run", "sweep")
    assert table["finetuning_steps"].eq(2).all() and set(table["strategy"]) == {"gradient", "random"}
    assert command(tiny_classifier, tmp_path) == 2
    assert "training.train" in capsys.readouterr().err


def test_gates_that_all_close_are_told(tiny_classifier, tmp_path, capsys):
    assert command(tiny_classifier, tmp_path, "--train", "gates", "--steps", "40", "--penalties", "500") == 0
    assert "every gate closed at penalty=500 (seed 1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--train", "gate"], "Did you mean 'gates'"),
        (["--steps", "5"], "--steps has no effect without training"),
        (["--keep", "5"], "--keep has no effect without training"),
        (["--train", "gates", "--penalties", "small"], "is not a list of numbers"),
        (["--train", "gates", "--keep", "99"], "99 of 8 heads cannot be kept"),
    ],
)
def test_wrong_training_options_are_usage_errors(tiny_classifier, tmp_path, capsys, options, words):
    assert command(tiny_classifier, tmp_path, *options) == 2
    assert words in capsys.readouterr().err
