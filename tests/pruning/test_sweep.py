"""Sweeps over the seven planted heads: numbers, controls, shared masks, resuming, and wrong input."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from headlab.base.errors import HeadlabError, UsageError
from headlab.base.masks import HeadMask
from headlab.pruning.orderings import order
from headlab.pruning.sweep import sweep
from headlab.runs.evaluations import evaluation_key, read_evaluation
from headlab.runs.tables import SWEEP_COLUMNS, load_table, save_table
from headlab.scores import score
from tests.support.killed_sweep import run_sweep
from tests.support.planted_seven import HEADS, N, is_removed, planted


def same_tables(first: pd.DataFrame, second: pd.DataFrame) -> None:
    """Equal in every column but the duration."""
    pd.testing.assert_frame_equal(
        first.drop(columns="seconds"), second.drop(columns="seconds"), check_exact=True, rtol=0, atol=0
    )


def planted_order(names: str) -> pd.Series:
    """Scores that remove the named heads in this order, the others after them."""
    heads, _ = planted(n=2)
    ranks = {HEADS[name]: place for place, name in enumerate(names.split())}
    return pd.Series([float(ranks.get(head, 99)) for head in heads.index], index=heads.index, name="score_made")


def losses(table: pd.DataFrame, strategy: str) -> list[float]:
    return table[(table.strategy == strategy) & (table.metric == "loss")]["value"].round(4).tolist()


def test_the_one_shot_gradient_curve_is_the_published_one():
    heads, task = planted()
    table = sweep(heads, task, order(score("gradient", heads, task, split="all")), range(8), split="all")
    known = [0.0096, 0.0096, 0.0107, 0.1763, 0.1678, 0.0789, 0.6931, 1.5966]
    assert losses(table, "gradient") == pytest.approx(known, abs=1e-4)


def test_the_greedy_ablation_curve_is_the_published_one():
    heads, task = planted()
    ordering = order(planted_order("harmful noise dead redA const useful redB"))
    table = sweep(heads, task, ordering, [1, 2, 3, 4, 5, 6, 7], split="all")
    known = [0.0096, 0.0043, 0.0041, 0.0041, 0.0045, 0.0453, 0.3876, 1.5966]
    assert losses(table, "made") == pytest.approx(known, abs=1e-4)


def test_the_table_is_the_contracts():
    heads, task = planted(n=400)
    table = sweep(heads, task, order(score("ablation", heads, task)), [0, 0.5, 7], seed=11, run=None)
    assert tuple(table.columns[:-2]) == SWEEP_COLUMNS and tuple(table.columns[-2:]) == ("run", "removed")
    assert (table["removed"].where(table["removed"] != "none", "").str.count("H") == table["n_removed"]).all()
    assert len(table) == 3 * 4 * 2  # budgets, strategies, metrics
    assert table["strategy"].unique().tolist() == ["ablation", "random"]
    assert table[["strategy", "seed"]].drop_duplicates().values.tolist() == [
        ["ablation", 11],
        ["random", 11],
        ["random", 12],
        ["random", 13],
    ]
    assert table["budget"].unique().tolist() == ["0", "50%", "7"]
    assert sorted(table["n_removed"].unique()) == [0, 4, 7]
    assert set(table["n_heads"]) == {7} and set(table["n_examples"]) == {200}
    assert (
        set(table["kinds"]) == {"encoder"} and set(table["split"]) == {"report"} and set(table["ablation"]) == {"zero"}
    )
    assert (table.loc[table.n_removed == 0, ["drop", "ci_low", "ci_high"]] == 0).all(axis=None)
    assert (table["seconds"] > 0).all()


def test_drop_is_worse_whatever_the_metrics_direction_and_lies_in_its_interval():
    heads, task = planted()
    table = sweep(heads, task, order(planted_order("redA redB")), [2])
    row = table[(table.strategy == "made") & (table.n_removed == 2)].set_index("metric")
    assert row.loc["loss", "drop"] == pytest.approx(row.loc["loss", "value"] - row.loc["loss", "baseline"])
    assert row.loc["accuracy", "drop"] == pytest.approx(row.loc["accuracy", "baseline"] - row.loc["accuracy", "value"])
    assert (
        (row["drop"] > 0).loc["loss"] and (row["ci_low"] <= row["drop"]).all() and (row["drop"] <= row["ci_high"]).all()
    )
    assert row.loc["loss", "ci_low"] > 0.1  # 0.1666: far from luck
    better = sweep(heads, task, order(planted_order("harmful")), [1])
    row = better[(better.strategy == "made") & (better.n_removed == 1) & (better.metric == "loss")].iloc[0]
    assert row["drop"] == pytest.approx(-0.0053, abs=1e-3) and row["ci_high"] < 0


def test_values_equal_evaluating_the_mask_by_hand():
    heads, task = planted(n=300)
    ordering = order(score("gradient", heads, task), within="layer")
    table = sweep(heads, task, ordering, [3], split="select")
    with heads.masked(HeadMask.removing(ordering[:3], like=heads)):
        by_hand = task.evaluate("select").examples.mean()
    row = table[(table.strategy == "gradient") & (table.n_removed == 3)].set_index("metric")
    assert row.loc["loss", "value"] == pytest.approx(by_hand["loss"], abs=1e-12)
    assert row.loc["accuracy", "value"] == by_hand["correct"]


def test_each_mask_is_evaluated_once_and_progress_counts_them():
    heads, task = planted(n=100)
    ranks = score("random", heads, task, seed=0)
    steps = []
    table = sweep(
        heads,
        task,
        [order(ranks, name="twin"), order(ranks, seed=0)],
        [0, "0%", 2, "2", 7, "100%"],
        seeds=1,
        progress=lambda *step: steps.append(step),
    )
    assert task.evaluations == 3
    assert [done for done, _, _ in steps] == [0, 1, 2, 3] and {total for _, total, _ in steps} == {3}
    assert steps[0][2] == "all heads"
    assert table["strategy"].value_counts().to_dict() == {"twin": 10, "random": 10}  # the given random is the control
    assert table["run"].nunique() == 3


def test_mean_ablation_frees_the_constant_head_and_takes_its_means_once():
    heads, task = planted()
    asked, replacements = [], heads.replacements
    heads.replacements = lambda *texts, **settings: asked.append(1) or replacements(*texts, **settings)
    table = sweep(heads, task, order(planted_order("const dead")), [1, 2], ablation="mean")
    drops = table[(table.strategy == "made") & (table.metric == "loss")]["drop"]
    assert drops.tolist() == pytest.approx([0, 0, 0], abs=1e-7)
    assert len(asked) == 1 and set(table["ablation"]) == {"mean"}


def test_random_controls_cover_the_same_heads_in_the_same_shares():
    heads, task = planted(n=20)
    scores = score("gradient", heads, task)
    table = sweep(heads, task, order(scores[scores.index.get_level_values("layer") == 1]), [1], seeds=5)
    assert set(table["n_heads"]) == {3}
    shared = sweep(heads, task, order(scores, within="layer"), [2], seeds=5, run=None)
    assert set(shared["n_heads"]) == {7} and len(shared[shared.strategy == "random"]) == 5 * 2 * 2


def test_a_metric_that_is_not_a_number_is_recorded_and_the_run_goes_on(tmp_path):
    heads, task = planted(n=50)
    whole = task.evaluate

    def breaking(split):
        found = whole(split)
        if is_removed(heads, "const"):
            found.examples["loss"] = np.nan
        return found

    task.evaluate = breaking
    table = sweep(heads, task, order(planted_order("dead const redA")), [1, 2, 3], seeds=1, run=tmp_path)
    rows = table[(table.strategy == "made") & (table.metric == "loss")]
    assert rows["value"].isna().tolist() == rows["ci_low"].isna().tolist() == [False, False, True, True]
    assert table[table.metric == "accuracy"]["value"].notna().all()
    same_tables(sweep(heads, task, order(planted_order("dead const redA")), [1, 2, 3], seeds=1, run=tmp_path), table)


def test_two_runs_with_one_seed_give_one_table_and_another_seed_another():
    same_tables(run_sweep(None)[0], run_sweep(None)[0])
    heads, task = planted(n=200)
    first, second = (sweep(heads, task, order(score("gradient", heads, task)), [3], seed=seed) for seed in (1, 2))
    assert not first["ci_low"].equals(second["ci_low"])


def test_a_finished_sweep_is_read_and_leaves_its_examples(tmp_path):
    table, needed = run_sweep(tmp_path)
    again, needed_again = run_sweep(tmp_path)
    assert needed == table["run"].nunique() and needed_again == 0
    pd.testing.assert_frame_equal(again, table)  # the durations too: they are those of the evaluations
    examples = load_table(tmp_path, "examples")
    assert examples["run"].nunique() == needed and len(examples) == needed * 100
    row = table[table.metric == "loss"].iloc[-1]
    assert examples[examples.run == row["run"]]["loss"].mean() == pytest.approx(row["value"])
    save_table(table, tmp_path, "sweep", "csv")
    pd.testing.assert_frame_equal(load_table(tmp_path, "sweep"), table, check_dtype=False)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_sweep_continues_where_it_stopped(tmp_path):
    run, out = tmp_path / "run", tmp_path / "table.parquet"
    command = [sys.executable, "-m", "tests.support.killed_sweep", str(run), "0.3", str(out)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)
    deadline = time.time() + 120
    while len(list(run.glob("rows/[!.]*.parquet"))) < 3 and process.poll() is None and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    finished = len(list(run.glob("rows/[!.]*.parquet")))
    undisturbed, needed = run_sweep(None)
    resumed, needed_after = run_sweep(run)
    assert 3 <= finished < needed and needed_after == needed - finished and not out.exists()
    same_tables(resumed, undisturbed)


@pytest.mark.parametrize("damage", ["cut short", "empty", "of another mask", "not parquet"])
def test_damaged_rows_are_evaluated_again(tmp_path, damage):
    table, needed = run_sweep(tmp_path)
    first, second = sorted(tmp_path.glob("rows/*.parquet"))[:2]
    content = first.read_bytes()
    first.write_bytes(
        {
            "cut short": content[: len(content) // 2],
            "empty": b"",
            "of another mask": second.read_bytes(),
            "not parquet": b"PAR1 nothing PAR1",
        }[damage]
    )
    again, needed_again = run_sweep(tmp_path)
    assert needed_again == 1 and first.read_bytes() != second.read_bytes()
    same_tables(again, table)


def test_rows_of_other_data_splits_and_ablations_are_not_taken(tmp_path):
    heads, task = planted(n=100)
    ordering = order(score("gradient", heads, task))
    sweep(heads, task, ordering, [3], seeds=1, run=tmp_path)
    assert task.evaluations == 3
    sweep(heads, task, ordering, [3], seeds=1, run=tmp_path, ablation="mean")
    assert task.evaluations == 5, "the full mask is the same under every ablation"
    sweep(heads, task, ordering, [3], seeds=1, run=tmp_path, split="select")
    assert task.evaluations == 8
    other_heads, other = planted(n=90)
    sweep(other_heads, other, ordering, [3], seeds=1, run=tmp_path)
    assert other.evaluations == 3
    assert (
        read_evaluation(tmp_path, evaluation_key(HeadMask.full(heads), "zero", "report", task.signature())) is not None
    )
    assert read_evaluation(tmp_path, "0" * 16) is None


def test_the_model_is_as_before():
    heads, task = planted(n=20)
    sweep(heads, task, order(score("gradient", heads, task)), [3])
    hooks = [h for m in heads.model.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]
    assert hooks == [] and not any("forward" in vars(module) for module in heads.model.modules())


def test_wrong_sweeps_are_refused_before_anything_runs(tmp_path):
    heads, task = planted(n=20)
    ranks = score("gradient", heads, task)
    ordering = order(ranks)
    cases = [
        ("Unknown ablation 'zeros'. Did you mean 'zero'", (ordering, [1]), {"ablation": "zeros"}),
        ("out of range", (ordering, [8]), {}),
        ("out of range", (ordering, "120%"), {}),
        ("no control", (ordering, [1]), {"seeds": 0}),
        ("no ordering", ([], [1]), {}),
        ("No budgets", (ordering, []), {}),
        ("differ in `within`", ([ordering, order(ranks, "layer")], [1]), {}),
        ("Two different orderings are called 'gradient'", ([ordering, order(-ranks)], [1]), {}),
        ("Two different orderings are called 'random'", (order(ranks, name="random"), [1]), {}),
    ]
    for cause, arguments, options in cases:
        with pytest.raises(UsageError, match=cause):
            sweep(heads, task, *arguments, run=tmp_path, **options)
    with pytest.raises(UsageError, match="another model"):
        sweep(heads, planted(n=20)[1], ordering, [1])
    with pytest.raises(UsageError, match="has no head"):
        wrong = ranks.rename(index={1: 7}, level="layer")
        sweep(heads, task, order(wrong), [7])
    assert task.evaluations == 0 and not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(HeadlabError, match="cannot be written"):
        sweep(heads, task, ordering, [1], run=tmp_path / "file")


def test_the_data_behind_the_published_numbers_is_whole():
    assert planted()[1].n == N == 2000
