"""Metrics as functions of sums, splits and limits, and what every plugin must provide."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest

from headlab.base.errors import DataError, UsageError
from headlab.metrics import METRICS, metric
from headlab.tasks import TASKS, TextTask, task
from headlab.tasks.data.splits import limited, split_positions, spread


def test_known_values():
    assert float(metric("accuracy").value({"correct": np.float64(3), "examples": np.float64(4)})) == 0.75
    assert float(metric("perplexity").value({"nll": np.float64(6), "tokens": np.float64(3)})) == pytest.approx(
        math.e**2
    )
    assert float(metric("next-token-accuracy").value({"hits": np.float64(1), "tokens": np.float64(8)})) == 0.125
    # Weighted by token: two windows of 1 and 9 tokens are not averaged as if equal.
    found = metric("perplexity").of({"nll": np.array([1.0, 0.0]), "tokens": np.array([1.0, 9.0])})
    assert found == pytest.approx(math.exp(0.1))


def test_a_drop_above_zero_means_worse():
    assert metric("accuracy").drop(0.9, 0.7) == pytest.approx(0.2)
    assert metric("perplexity").drop(20.0, 25.0) == pytest.approx(5)


@pytest.mark.parametrize("name", METRICS.names())
def test_every_metric_works_on_any_leading_shape_and_keeps_nan(name):
    one = metric(name)
    assert one.name == name and one.title and one.text.endswith(".") and one.definition and one.source
    generator = np.random.default_rng(0)
    sums = {column: generator.uniform(1, 2, size=(5, 3)) for column in one.columns}
    values = one.value(sums)
    assert values.shape == (5, 3)
    assert values[2, 1] == one.value({column: array[2, 1] for column, array in sums.items()})
    spoilt = {column: np.full(2, np.nan) for column in one.columns}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(one.value(spoilt)).all()
        assert np.isnan(one.value({column: np.zeros(2) for column in one.columns})).all()
        one.value({column: np.full(2, 1e9) if place == 0 else np.ones(2) for place, column in enumerate(one.columns)})


def test_a_perplexity_beyond_all_numbers_is_infinite():
    assert metric("perplexity").of({"nll": np.array([1e6]), "tokens": np.array([1.0])}) == math.inf


@pytest.mark.parametrize("name", TASKS.names())
def test_every_task_names_itself_and_its_metrics(name):
    kind = TASKS.load(name)
    assert issubclass(kind, TextTask) and kind.name == name
    assert kind.metrics and set(kind.metrics) <= set(METRICS.names())
    assert TASKS.summary(name)


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UsageError, match="Did you mean 'minimal-pairs'"):
        task("minimal-pair", "demo:smollm2")
    with pytest.raises(UsageError, match="Did you mean 'limit'"):
        task("lm", "demo:smollm2", limits=3)


def test_splits_cover_everything_once_and_keep_the_groups_in_proportion():
    groups = ["a"] * 40 + ["b"] * 10
    split = split_positions(groups, "50:50", seed=3)
    assert sorted([*split["select"], *split["report"]]) == list(range(50))
    for name in ("select", "report"):
        assert [groups[place] for place in split[name]].count("b") == 5


@pytest.mark.parametrize(
    ("text", "n", "sizes"),
    [
        ("50:50", 7, (4, 3)),
        ("50:50", 5, (2, 3)),
        ("20:80", 10, (2, 8)),
        ("20%:30%", 10, (2, 3)),
        ("4:6", 20, (4, 6)),
        ("0:100", 5, (0, 5)),
        ("50:50", 1, (0, 1)),
    ],
)
def test_split_sizes(text, n, sizes):
    split = split_positions([""] * n, text, seed=0)
    assert (len(split["select"]), len(split["report"])) == sizes
    assert not set(split["select"]) & set(split["report"])


@pytest.mark.parametrize("text", ["half", "50", "60%:50%", "10%:20", "0%:0%"])
def test_what_is_no_split(text):
    with pytest.raises(UsageError):
        split_positions([""] * 10, text, seed=0)


def test_a_split_of_more_examples_than_there_are():
    with pytest.raises(DataError, match="needs 30 examples and there are 10"):
        split_positions([""] * 10, "10:20", seed=0)


def test_a_limit_takes_the_first_of_every_group():
    assert limited(["a"] * 6, 3) == [0, 1, 2]
    assert limited(["a"] * 6 + ["b"] * 3, 3) == [0, 1, 6]
    assert limited(["a", "b"], None) == limited(["a", "b"], 5) == [0, 1]
    assert sorted(spread(list("abcabc"), seed=1)) == list(range(6))


def test_listing_tasks_and_metrics_loads_no_torch():
    code = (
        "import sys; from headlab.tasks import TASKS; from headlab.metrics import METRICS\n"
        "names = TASKS.names() + METRICS.names(); assert 'lm' in names and 'perplexity' in names\n"
        "assert TASKS.summary('lm'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr
