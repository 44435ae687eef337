"""Every built-in metric follows the contract, and each rule catches a metric that breaks it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from headlab.metrics import METRICS, Metric
from headlab.metrics.metric import ratio
from headlab.testing import check_metric

ERRORS = Metric(
    name="errors",
    title="errors",
    text="Share of the examples that are answered wrongly.",
    columns=("wrong", "examples"),
    value=lambda sums: ratio(sums["wrong"], sums["examples"]),
    higher_is_better=False,
    unit="share",
    bounds=(0.0, 1.0),
    definition="wrong answers / examples",
    source="ours",
)


@pytest.mark.parametrize("name", METRICS.built_in())
def test_built_in_metrics_follow_the_contract(name: str) -> None:
    check_metric(METRICS.load(name))


def test_a_metric_of_ones_own_follows_the_contract_on_its_own_examples() -> None:
    check_metric(ERRORS, {"wrong": np.array([1.0, 0.0, 1.0]), "examples": np.ones(3)})
    with pytest.raises(AssertionError, match="columns that the examples do not have: wrong"):
        check_metric(ERRORS, {"examples": np.ones(3)})
    with pytest.raises(AssertionError, match="leaves its bounds"):
        check_metric(ERRORS, {"wrong": np.array([3.0]), "examples": np.ones(1)})


def spoils(sums):
    sums["wrong"] += 1
    return ratio(sums["wrong"], sums["examples"])


CALLS = iter(range(10**6))


@dataclass(frozen=True, kw_only=True)
class AlwaysWorse(Metric):
    def drop(self, baseline, value):
        return np.asarray(value) * 0 + 1


BROKEN = {
    "has no title": replace(ERRORS, title=""),
    "no sentence": replace(ERRORS, text="Share"),
    "has no source": replace(ERRORS, source=""),
    "has no definition": replace(ERRORS, definition=""),
    "names no columns": replace(ERRORS, columns=()),
    "bounds that hold no value": replace(ERRORS, bounds=(1.0, 0.0)),
    "gives shape": replace(ERRORS, value=lambda sums: ratio(sums["wrong"].sum(), sums["examples"].sum())),
    "other values for sums that are passed together": replace(
        ERRORS, value=lambda sums: ratio(sums["wrong"], np.max(sums["examples"]))
    ),
    "another value for the same sums": replace(
        ERRORS, value=lambda sums: ratio(sums["wrong"], sums["examples"]) + (next(CALLS) > 15)
    ),
    "a number where wrong is NaN": replace(
        ERRORS, value=lambda sums: ratio(np.nan_to_num(sums["wrong"]), sums["examples"])
    ),
    "warns on sums of 0 or NaN": replace(ERRORS, value=lambda sums: np.asarray(sums["wrong"]) / sums["examples"]),
    "changes the sums": replace(ERRORS, value=spoils),
    "leaves its bounds": replace(ERRORS, value=lambda sums: 100 * ratio(sums["wrong"], sums["examples"])),
    "a drop where nothing has changed": AlwaysWorse(**vars(ERRORS)),
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_metric_is_caught(says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_metric(BROKEN[says])


def test_what_is_no_metric_is_caught() -> None:
    with pytest.raises(AssertionError, match="is no headlab.Metric"):
        check_metric("accuracy")  # type: ignore[arg-type]
