"""Single heads, layers cut to one, groups, kept heads, compensation, areas: against naive loops, hand-made values."""

from __future__ import annotations

import contextlib

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from transformers import LlamaConfig, LlamaForCausalLM

from headlab.attention.heads import Heads
from headlab.base.errors import DataError, UsageError
from headlab.base.masks import HeadMask
from headlab.metrics import metric
from headlab.pruning.agreement import effect_correlation, rank_stability
from headlab.pruning.areas import curve_areas
from headlab.pruning.compensation import compensated, folded_biases
from headlab.pruning.layerwise import one_head_per_layer, require_enough, single_heads
from headlab.pruning.orderings import order
from headlab.pruning.plan import plan
from headlab.pruning.significance import adjusted, paired_p
from headlab.pruning.sweep import sweep
from headlab.pruning.training import Finetuning
from headlab.runs.journal import Journal
from headlab.runs.tables import load_table
from headlab.scores import score
from tests.support.engine_models import RandomTask, tiny_bart, tiny_bert


class StatisticsTask(RandomTask):
    """The random task with the columns of a real one."""

    def statistics(self, model, batch) -> dict[str, torch.Tensor]:
        right = (self._logits(model, batch).argmax(-1) == self._labels(batch)).double().mean(dim=1)
        return {"loss": self.losses(model, batch), "correct": right, "examples": torch.ones_like(right)}

    def keeping(self, folder, key):
        return contextlib.nullcontext()

    def batches(self, split: str = "all", examples=None):
        ids = self.split(split) if examples is None else np.sort(np.asarray(examples))
        before, self.split = self.split, lambda name: ids
        try:
            yield from list(super().batches(split))
        finally:
            self.split = before


def bert(n: int = 48) -> tuple[Heads, StatisticsTask]:
    heads, _ = tiny_bert()
    return heads, StatisticsTask(heads.model, n=n)


def by_hand(heads, task, removed, split="report") -> pd.DataFrame:
    """The task's own evaluation under a mask."""
    with heads.masked(HeadMask.removing(removed, like=heads)):
        return task.evaluate(split).examples


def test_every_head_alone_equals_a_naive_loop():
    heads, task = bert()
    table = single_heads(heads, task)
    whole = task.evaluate("report").examples
    assert len(table) == 8 * 2 and set(table["n_examples"]) == {24}
    for row in table.itertuples():
        alone = by_hand(heads, task, [(row.kind, row.layer, row.head)])
        if row.metric == "loss":
            assert row.value == pytest.approx(alone["loss"].mean(), rel=1e-5)
            assert row.drop == pytest.approx((alone["loss"] - whole["loss"]).mean(), abs=1e-6)
            assert row.p == pytest.approx(stats.ttest_rel(alone["loss"], whole["loss"]).pvalue, rel=1e-3)
        else:
            assert row.value == pytest.approx(alone["correct"].mean())
            moved = (alone["correct"] - whole["correct"])[lambda change: change != 0]
            expected = stats.binomtest(int((moved > 0).sum()), len(moved)).pvalue if len(moved) else 1.0
            assert row.p == pytest.approx(expected)
    losses = table[table.metric == "loss"]
    ranked = losses.sort_values("p")
    by_rank = (ranked["p"] * 8 / np.arange(1, 9))[::-1].cummin()[::-1].clip(upper=1)  # Benjamini-Hochberg by hand
    np.testing.assert_allclose(ranked["q"], by_rank)
    assert (losses["significant"] == (losses["q"] < 0.05)).all()


def test_layers_cut_to_their_best_head_are_chosen_on_one_split_and_judged_on_the_other():
    heads, task = bert()
    table = one_head_per_layer(heads, task)
    assert table.groupby("chosen_on").size().to_dict() == {"report": 4, "select": 4}
    for (chosen_on, layer), rows in table.groupby(["chosen_on", "layer"]):
        losses = {}
        for head in range(4):
            others = [("encoder", layer, h) for h in range(4) if h != head]
            losses[head] = by_hand(heads, task, others, chosen_on)["loss"].mean()
        best = min(losses, key=losses.get)
        assert set(rows["head"]) == {best}
        judged = by_hand(heads, task, [("encoder", layer, h) for h in range(4) if h != best])["loss"].mean()
        assert rows.loc[rows.metric == "loss", "value"].item() == pytest.approx(judged, rel=1e-5)
    drops = table[table.metric == "loss"].pivot(index="layer", columns="chosen_on", values="drop")
    assert (drops["report"] <= drops["select"] + 1e-9).all(), "a choice on the judged examples can only flatter"


def test_a_killed_table_goes_on_from_its_journal(tmp_path):
    heads, task = bert()
    undisturbed = single_heads(heads, task)
    journal = Journal(tmp_path, "single", task.signature())

    class Stop(Exception):
        pass

    def stop(done, total, what):
        if done == 3:
            raise Stop

    with pytest.raises(Stop):
        single_heads(heads, task, journal=journal, progress=stop)
    whole_lines = journal.path.read_bytes()
    journal.path.write_bytes(whole_lines + b'["report 2 whole", [["lo')  # the line in progress when it was killed
    calls = []
    losses = task.losses
    task.losses = lambda model, batch: calls.append(1) or losses(model, batch)
    resumed = single_heads(heads, task, journal=Journal(tmp_path, "single", task.signature()))
    pd.testing.assert_frame_equal(resumed, undisturbed, check_exact=True)
    n_calls = len(calls)
    again = single_heads(heads, task, journal=Journal(tmp_path, "single", task.signature()))
    pd.testing.assert_frame_equal(again, undisturbed, check_exact=True)
    assert n_calls and len(calls) == n_calls, "a finished table needs no model"
    assert Journal(tmp_path, "single", {"task": "another"}).keys() == set()


def test_a_resumed_table_or_score_knows_that_its_batches_are_others(tmp_path):
    """What a journal holds of batches of one size is never taken for batches of another."""
    heads, task = bert()
    undisturbed = single_heads(heads, task), score("ablation", heads, task)
    task.n_batches = 1
    journals = Journal(tmp_path, "single", {}), Journal(tmp_path, "ablation", {})
    single_heads(heads, task, journal=journals[0])
    score("ablation", heads, task, journal=journals[1])
    task.n_batches = 3
    resumed = single_heads(heads, task, journal=journals[0]), score("ablation", heads, task, journal=journals[1])
    pd.testing.assert_frame_equal(resumed[0], undisturbed[0], check_exact=True)
    pd.testing.assert_series_equal(resumed[1], undisturbed[1], check_exact=True)


def test_tables_of_some_kinds_are_corrected_for_their_heads_alone():
    heads, _ = tiny_bart()
    task = StatisticsTask(heads.model, n=48)
    table = single_heads(heads, task, kinds=["cross"])
    n = sum(size for (kind, _), size in heads.heads_per_layer.items() if kind == "cross")
    loss = table[table.metric == "loss"]
    assert set(table["kind"]) == {"cross"} and len(loss) == n
    np.testing.assert_allclose(loss["q"], adjusted(loss["p"].to_numpy()))
    assert set(one_head_per_layer(heads, task, kinds=["cross"])["kind"]) == {"cross"}
    with pytest.raises(UsageError, match="Unknown kind of attention 'crss'"):
        single_heads(heads, task, kinds=["crss"])


def test_what_is_no_ordering_mask_or_task_is_refused_by_name():
    from headlab.tasks import task as open_task

    heads, task = bert()
    scores = score("random", heads, task)
    for wrong in (scores, list(heads.index), None):
        with pytest.raises(UsageError, match="takes orderings"):
            sweep(heads, task, wrong, [1])
    with pytest.raises(UsageError, match="not by ndarray"):
        order(scores.to_numpy())
    with pytest.raises(UsageError, match="cannot be read from NoneType"):
        HeadMask.removing(None, like=heads)
    with pytest.raises(UsageError, match="is a HeadMask, not dict"), heads.masked({0: [1]}):
        pass
    with pytest.raises(UsageError, match="seed = -1"):
        open_task("lm", "demo:smollm2", seed=-1)
    with pytest.raises(UsageError, match="pair = 5 is no text"):
        open_task("translation", "demo:firefox-en-pt", pair=5)
    with pytest.raises(UsageError, match="not NoneType"):
        open_task("lm", None)


def test_too_few_examples_are_refused_with_the_number_needed():
    require_enough(12, 72)  # 2 ** (1 - 12) = 0.00049 < .05 / 72 = 0.00069
    with pytest.raises(DataError, match="11 examples are too few for 72 tests; at least 12"):
        require_enough(11, 72)
    with pytest.raises(DataError, match="3 examples are too few for 8 tests; at least 9"):
        single_heads(*bert(n=6))


def test_folded_biases_equal_mean_ablation():
    for made in (tiny_bert, tiny_bart):
        heads, task = made()
        means = heads.mean_outputs(list(task.batches()))
        mask = HeadMask.removing([tuple(heads.index[i]) for i in (0, 3, len(heads.index) - 1)], like=heads)
        with torch.no_grad():
            for batch in task.batches():
                with heads.masked(mask, "mean", means):
                    expected = task.losses(heads.model, batch)
                with compensated(heads, mask, means):
                    found = task.losses(heads.model, batch)
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
                with heads.masked(mask):
                    assert (task.losses(heads.model, batch) - expected).abs().max() > 1e-4
    heads, task = tiny_bert()
    means = heads.mean_outputs(list(task.batches()))
    weight = heads.model.bert.encoder.layer[1].attention.output.dense.weight
    bias = folded_biases(heads, HeadMask.removing("L1H2", like=heads), means)[("encoder", 1)]
    torch.testing.assert_close(bias, weight[:, 16:24] @ means["encoder", 1][2])


def test_compensated_curves_stand_beside_plain_ones():
    heads, task = bert()
    ordering = order(pd.Series(np.arange(8.0), index=heads.index, name="score_made"))
    table = sweep(heads, task, ordering, [2], seeds=1, compensate="mean")
    assert table["strategy"].unique().tolist() == ["made", "random", "made + mean bias", "random + mean bias"]
    plain = sweep(heads, task, ordering, [2], seeds=1, ablation="mean")
    mine = table[table.strategy == "made + mean bias"].reset_index(drop=True)
    as_means = plain[plain.strategy == "made"]["value"].reset_index(drop=True)
    pd.testing.assert_series_equal(mine["value"], as_means, rtol=1e-5)
    assert set(table["ablation"]) == {"zero"}  # one figure holds both
    zero = table[table.strategy == "made"].reset_index(drop=True)
    assert not np.allclose(mine["value"][2:], zero["value"][2:])
    with pytest.raises(UsageError, match="beside plain zero ablation, not mean ablation"):
        sweep(heads, task, ordering, [2], ablation="mean", compensate="mean")
    with pytest.raises(UsageError, match="not fine-tuning"):
        sweep(heads, task, ordering, [2], compensate="mean", finetuning=Finetuning(2))
    with pytest.raises(UsageError, match="Unknown compensation"):
        sweep(heads, task, ordering, [2], compensate="median")


@pytest.mark.parametrize("ablation", ["resample", "uniform"])
def test_other_ablations_are_swept(ablation):
    heads, task = bert()
    ordering = order(pd.Series(np.arange(8.0), index=heads.index, name="score_made"))
    table = sweep(heads, task, ordering, [3], seeds=1, ablation=ablation)
    means = heads.replacements(ablation, list(task.batches("select")))
    with heads.masked(HeadMask.removing(ordering[:3], like=heads), ablation, means):
        expected = task.evaluate("report").examples["loss"].mean()
    row = table[(table.strategy == "made") & (table.n_removed == 3) & (table.metric == "loss")].iloc[0]
    assert row["value"] == pytest.approx(expected) and row["ablation"] == ablation


def scores_of(values: list[float], per_layer: int = 4) -> pd.Series:
    rows = [("encoder", i // per_layer, i % per_layer) for i in range(len(values))]
    index = pd.MultiIndex.from_tuples(rows, names=["kind", "layer", "head"])
    return pd.Series(values, index=index, name="score_made", dtype=float)


def test_the_best_heads_of_each_layer_stay():
    ordering = order(scores_of([1, 2, 3, 4, 50, 60, 70, 80]), keep_at_least=2)
    assert [tuple(head)[1:] for head in ordering.cut(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(UsageError, match=r"removes 5 of 8 heads; with at least 2 kept in each of 2 layers, 4 can go"):
        ordering.cut(5)
    with pytest.raises(UsageError, match="has 4 heads, so 5 cannot be kept"):
        order(scores_of([1, 2, 3, 4]), keep_at_least=5)


def test_groups_go_whole_by_their_mean():
    scores = scores_of([9, 1, 4, 4, 0, 8, 2, 1])
    groups = pd.Series([0, 0, 1, 1] * 2, index=scores.index)
    ordering = order(scores, groups=groups)
    assert ordering.sizes == (2, 2, 2, 2)
    assert [tuple(head)[1:] for head in ordering.heads] == [
        (1, 2),
        (1, 3),
        (0, 2),
        (0, 3),
        (1, 0),
        (1, 1),
        (0, 0),
        (0, 1),
    ]
    assert len(ordering.cut(1)) == 2 and len(ordering.cut("50%")) == 4
    kept = order(scores, groups=groups, keep_at_least=1)
    assert kept.kept == 4 and [tuple(h)[1:] for h in kept.cut(2)] == [(1, 2), (1, 3), (0, 2), (0, 3)]


def test_random_controls_take_whole_groups_too():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    model = LlamaForCausalLM(config).eval()
    heads = Heads(model)
    task = StatisticsTask(model, n=8)
    task.losses = lambda model, batch: model(**batch.inputs).logits.logsumexp(-1).mean(1)
    task._labels = lambda batch: batch.source.ids
    ordering = order(pd.Series(np.arange(8.0), index=heads.index, name="score_made"), groups=heads.kv_groups)
    for cell in plan(heads, task, ordering, [1, 2, 3], seeds=4):
        assert len(cell.mask.removed) == 2 * int(cell.budget or 0)
        for key in cell.mask:
            assert cell.mask[key][0] == cell.mask[key][1] and cell.mask[key][2] == cell.mask[key][3]


def test_labels_get_a_control_from_the_same_layers():
    heads, task = bert()
    scores = pd.Series([0, 1, 9, 9, 9, 9, 9, 9.0], index=heads.index, name="score_label:sink")
    table = sweep(heads, task, order(scores), [1, 2], seeds=2)
    matched = table[(table.strategy == "matched:sink") & (table.metric == "loss")]
    assert matched["seed"].unique().tolist() == [0, 1] and matched["n_removed"].tolist() == [0, 1, 2] * 2
    cells = [cell for cell in plan(heads, task, order(scores), [2], seeds=2) if cell.strategy == "matched:sink"]
    for cell in cells[1::2]:
        assert [tuple(head)[1:] for head in cell.mask.removed] == [(0, 2), (0, 3)], "layer 0 has no other heads"


def test_areas_are_the_trapezoids_of_the_drops(tmp_path):
    heads, task = bert()
    ordering = order(pd.Series(np.arange(8.0), index=heads.index, name="score_made"))
    table = sweep(heads, task, ordering, [0, 2, 6], seeds=2, run=tmp_path)
    examples = load_table(tmp_path, "examples")
    areas = curve_areas(table, examples, [metric("loss"), metric("accuracy")]).set_index(["strategy", "metric"])

    def area(strategy, seed, name):
        rows = table[(table.strategy == strategy) & (table.seed == seed) & (table.metric == name)]
        _, two, six = rows["drop"]
        return (2 * two / 2 + 4 * (two + six) / 2) / 6

    for name in ("loss", "accuracy"):
        random = (area("random", 0, name) + area("random", 1, name)) / 2
        mine = areas.loc[("made", name)]
        assert mine["area"] == pytest.approx(area("made", 0, name)) and mine["share"] == 0.75
        assert mine["minus_random"] == pytest.approx(mine["area"] - random)
        assert mine["ci_low"] <= mine["area"] <= mine["ci_high"]
        assert areas.loc[("random", name), "area"] == pytest.approx(random)
        assert areas.loc[("random", name), "n_orders"] == 2


def test_the_area_of_gates_begins_at_the_whole_model_and_is_compared_as_far_as_both_go(tmp_path):
    heads, task = bert()
    ordering = order(pd.Series(np.arange(8.0), index=heads.index, name="score_made"))
    table = sweep(heads, task, ordering, [0, 2, 6], seeds=1, run=tmp_path)
    examples = load_table(tmp_path, "examples")
    gates = table[(table.strategy == "made") & (table.n_removed == 2)].assign(strategy="hard_concrete")
    both = pd.concat([table, gates], ignore_index=True)
    areas = curve_areas(both, examples, [metric("loss")]).set_index("strategy")
    drop = gates.loc[gates.metric == "loss", "drop"].item()
    assert areas.loc["hard_concrete", "area"] == pytest.approx(drop / 2) and areas.loc["hard_concrete", "share"] == 0.25
    random = table[(table.strategy == "random") & (table.metric == "loss") & (table.n_removed == 2)]["drop"].item()
    assert areas.loc["hard_concrete", "minus_random"] == pytest.approx(drop / 2 - random / 2)
    # Four heads lie halfway between two budgets of the random order.
    halfway = pd.concat(
        [table, gates.assign(n_removed=4)], ignore_index=True
    )  # between two budgets of the random order
    found = curve_areas(halfway, examples, [metric("loss")]).set_index("strategy").loc["hard_concrete"]
    six = table[(table.strategy == "random") & (table.metric == "loss") & (table.n_removed == 6)]["drop"].item()
    expected = (2 * random / 2 + 2 * (random + (random + six) / 2) / 2) / 4
    assert found["area"] - found["minus_random"] == pytest.approx(expected)


def test_effects_of_two_runs_are_correlated_metric_by_metric():
    rows = [("encoder", 0, head, name) for name in ("loss", "accuracy") for head in range(6)]
    first = pd.DataFrame(rows, columns=["kind", "layer", "head", "metric"])
    rng = np.random.default_rng(0)
    first["drop"] = rng.normal(size=12)
    second = first.assign(drop=np.where(first.metric == "loss", 3 * first["drop"] + 1, rng.normal(size=12)))
    found = effect_correlation(first, second.sample(frac=1, random_state=0)).set_index("metric")
    assert found.loc["loss", "pearson"] == pytest.approx(1) and found.loc["loss", "n_heads"] == 6
    x, y = (t[t.metric == "accuracy"]["drop"] for t in (first, second))
    r = np.corrcoef(x, y)[0, 1]
    low, high = np.tanh(np.arctanh(r) + np.array([-1, 1]) * 1.959964 / np.sqrt(3))
    assert found.loc["accuracy", ["pearson", "ci_low", "ci_high"]].tolist() == pytest.approx([r, low, high], abs=1e-5)
    with pytest.raises(DataError, match="share no head"):
        effect_correlation(first, second.assign(layer=1))


def test_stability_is_the_rank_correlation_of_two_halves():
    heads, task = bert(n=80)
    table = rank_stability("gradient", heads, task, seeds=2)
    assert table["n_examples"].tolist() == [20, 20] and table["spearman"].between(-1, 1).all()
    ids = np.random.default_rng(0).permutation(task.split("select"))
    parts = []
    for half in (ids[:20], ids[20:40]):
        slopes = np.concatenate(list(heads.gradients(task.batches("select", examples=half), task.losses)))
        parts.append(np.abs(slopes).mean(0))
    assert table["spearman"][0] == pytest.approx(stats.spearmanr(*parts).statistic)
    assert abs(rank_stability("random", heads, task, seeds=20)["spearman"].mean()) < 0.4


def test_adjusted_p_leaves_what_is_missing_out():
    np.testing.assert_allclose(adjusted(np.array([0.01, np.nan, 0.04, 0.03])), [0.03, np.nan, 0.04, 0.04])


def test_a_test_of_nothing_changed_and_of_no_number():
    whole = pd.DataFrame({"correct": [1.0, 0, 1], "examples": 1.0})
    assert paired_p(whole, whole, metric("accuracy")) == 1
    assert np.isnan(paired_p(whole, whole.assign(correct=np.nan), metric("accuracy")))
    flipped = whole.assign(correct=[0.0, 0, 0])
    assert paired_p(whole, flipped, metric("accuracy")) == pytest.approx(0.5)  # two of two go wrong: 2 / 2 ** 2
