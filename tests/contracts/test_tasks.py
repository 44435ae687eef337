"""A task of one's own that follows the contract, and for each rule one that breaks it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from headlab.metrics import metric
from headlab.tasks import Evaluation
from headlab.testing import ExampleTask, check_task, example_heads


class Mine(ExampleTask):
    """A whole task: what the example lacks is how it is evaluated."""

    name = "mine"

    def evaluate(self, split: str = "all", progress: Any = None) -> Evaluation:
        """Per-example columns and the metric loss."""
        parts = []
        for batch in self.batches(split):
            with torch.no_grad():
                columns = self.statistics(self.network, batch)
            parts.append(pd.DataFrame({k: v.numpy().astype(float) for k, v in columns.items()}, index=batch.examples))
        examples = pd.concat(parts).sort_index()
        values = {name: metric(name).of({c: examples[c].to_numpy() for c in examples}) for name in self.metrics}
        return Evaluation(examples, values, self.signature())


def made(kind: type = Mine, **changes: Any) -> Any:
    """A task like Mine with something changed, over a tiny decoder."""
    return type("Changed", (kind,), changes)(example_heads().subject.module)


def test_a_task_of_ones_own_follows_the_contract() -> None:
    check_task(made())
    check_task(Mine, example_heads().subject.module)


def both_halves(self: Any, name: str) -> np.ndarray:
    return Mine.split(self, "all" if name == "report" else name)


def beyond_all(self: Any, name: str) -> np.ndarray:
    return Mine.split(self, name) + (8 if name == "report" else 0)


def unsorted(self: Any, name: str) -> np.ndarray:
    return Mine.split(self, name)[::-1] if name == "all" else Mine.split(self, name)


def by_key(self: Any, name: str) -> np.ndarray:
    return Mine.split(self, name) if name in ("all", "select", "report") else {}[name]


def anything(self: Any, name: str) -> np.ndarray:
    return Mine.split(self, name if name in ("all", "select", "report") else "all")


def losses(change: Any) -> Any:
    return lambda self, model, batch: change(Mine.losses(self, model, batch), batch)


def first_batch(self: Any, split: str = "all", examples: Any = None) -> Any:
    yield next(iter(Mine.batches(self, split, examples)))


def everything(self: Any, split: str = "all", examples: Any = None) -> Any:
    return Mine.batches(self, split)


def trained(self: Any, split: str = "all", progress: Any = None) -> Evaluation:
    self.network.train()
    return Mine.evaluate(self, split)


def rounded(self: Any, split: str = "all", progress: Any = None) -> Evaluation:
    found = Mine.evaluate(self, split)
    return Evaluation(found.examples, {name: round(value) for name, value in found.values.items()}, found.signature)


def of_all(self: Any, split: str = "all", progress: Any = None) -> Evaluation:
    return Mine.evaluate(self, "all")


CALLS = iter(range(10**6))

BROKEN = {
    "has no title": {"title": ""},
    "no sentence": {"text": "Predicts"},
    "has no loss": {"loss": ""},
    "has no purpose": {"purpose": ""},
    "has no evaluate": {"evaluate": None},
    "names no metric": {"metrics": ()},
    "a metric that does not exist: los": {"metrics": ("los",)},
    "in both halves": {"split": both_halves},
    "halves with examples that are not among all": {"split": beyond_all},
    "sorted ids": {"split": unsorted},
    "unknown split with KeyError": {"split": by_key},
    "takes a split that does not exist": {"split": anything},
    "losses of shape": {"losses": losses(lambda found, batch: found.mean())},
    "no finite numbers": {"losses": losses(lambda found, batch: found * float("nan"))},
    "other losses on a second call": {"losses": losses(lambda found, batch: found + next(CALLS))},
    "depend on the batch": {"losses": losses(lambda found, batch: found + found.mean())},
    "without some of the split's examples": {"batches": first_batch},
    "the examples that are asked for": {"batches": everything},
    "leave the model as it found it: training flags": {"evaluate": trained},
    "does not measure examples, which the metric loss needs": {
        "statistics": lambda self, model, batch: {"loss": self.losses(model, batch)},
        "evaluate": lambda self, split: Evaluation(Mine(self.network).evaluate(split).examples[["loss"]], {}, {}),
    },
    "a loss that is not that of its examples": {"evaluate": rounded},
    "evaluates other examples": {"evaluate": of_all},
    "losses without gradients": {"losses": losses(lambda found, batch: found.detach())},
    "another signature every time": {"signature": lambda self: {"call": next(CALLS)}},
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_task_is_caught(says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        check_task(made(**BROKEN[says]))
