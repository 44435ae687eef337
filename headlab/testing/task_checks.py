"""Checks of a task of one's own: facts, splits, batches, differentiable losses, metrics from sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

import headlab
from headlab import Heads, UsageError, metric
from headlab.testing.checks import errors_told, left_as_found, require, require_alike, require_facts

FACTS = ("definition", "source", "loss", "purpose")
MISSPELT = "an_option_that_no_task_has"
METHODS = ("split", "batches", "losses", "statistics", "evaluate", "signature")
TOLERANCE = 1e-3


def check_task(task: Any, model: Any = None) -> None:
    """Raise AssertionError, with a sentence, where a task breaks a rule that headlab relies on.

    `task` is a task, or a class of tasks that is made for `model` (a checkpoint) with its default options.
    """
    made = task(model) if isinstance(task, type) else task
    if isinstance(task, type) and hasattr(model, "tokenizer"):
        _check_options(task, model)
    who = f"The task {getattr(made, 'name', type(made).__name__)}"
    require_facts(made, "task", FACTS)
    missing = [name for name in METHODS if not callable(getattr(made, name, None))]
    require(not missing, f"{who} has no {', '.join(missing)}.")
    require(made.metrics, f"{who} names no metric.")
    for name in made.metrics:
        try:
            metric(name)
        except UsageError as error:
            raise AssertionError(f"{who} names a metric that does not exist: {name}.") from error
    with errors_told(who):
        _check_split(made, who)
        with left_as_found(made.network, who):
            _check_batches(made, who)
            _check_statistics(made, who)
        _check_gradients(made, who)
        require(made.signature() == made.signature(), f"{who} has another signature every time.")


def _check_options(kind: Any, model: Any) -> None:
    try:
        headlab.task(kind, model, **{MISSPELT: 1})
    except UsageError as error:
        require(MISSPELT in str(error), f"The task {kind.name} does not name a misspelt option.")
    else:
        raise AssertionError(f"The task {kind.name} takes an option that it does not have.")


def _check_split(task: Any, who: str) -> None:
    every, select, report = (np.asarray(task.split(name)) for name in ("all", "select", "report"))
    require(not set(select) & set(report), f"{who} has examples that are in both halves.")
    require(set(select) | set(report) <= set(every), f"{who} has halves with examples that are not among all.")
    require(list(every) == sorted(set(every)), f"{who} does not give sorted ids, each once.")
    try:
        task.split("a split that does not exist")
    except UsageError:
        return
    except Exception as error:
        raise AssertionError(f"{who} meets an unknown split with {type(error).__name__}, not UsageError.") from error
    raise AssertionError(f"{who} takes a split that does not exist.")


def _losses(task: Any, batches: Any) -> dict[int, float]:
    found: dict[int, float] = {}
    for batch in batches:
        with torch.no_grad():
            losses = task.losses(task.network, batch)
        ids = list(dict.fromkeys(batch.examples))
        require(
            losses.shape == (len(ids),), f"{task.name}: losses of shape {tuple(losses.shape)} for {len(ids)} examples."
        )
        found |= dict(zip(ids, losses.double().tolist(), strict=True))
    return found


def _check_batches(task: Any, who: str) -> None:
    """All examples once, finite losses, the same on every call, and the same when an example is alone."""
    ids = task.split("select")
    first = _losses(task, task.batches("select"))
    require(sorted(first) == list(ids), f"{who} has batches without some of the split's examples.")
    require(np.isfinite(list(first.values())).all(), f"{who} has losses that are no finite numbers.")
    again = _losses(task, task.batches("select"))
    require_alike(list(again.values()), list(first.values()), f"{who} gives other losses on a second call.")
    alone: dict[int, float] = {}
    for example in ids[:4]:
        asked = _losses(task, task.batches("select", examples=[int(example)]))
        require(list(asked) == [example], f"{who} does not give the examples that are asked for.")
        alone |= asked
    sentence = f"{who} has losses that depend on the batch or on padding."
    require_alike(list(alone.values()), [first[example] for example in alone], sentence, TOLERANCE)


def _check_statistics(task: Any, who: str) -> None:
    """Columns of one number an example that every metric can be worked out from."""
    evaluation = task.evaluate("select")
    for name in task.metrics:
        missing = [column for column in metric(name).columns if column not in evaluation.examples]
        require(not missing, f"{who} does not measure {', '.join(missing)}, which the metric {name} needs.")
        expected = metric(name).of({c: evaluation.examples[c].to_numpy() for c in evaluation.examples})
        require_alike(evaluation.values[name], expected, f"{who} has a {name} that is not that of its examples.", 1e-9)
    require(list(evaluation.examples.index) == list(task.split("select")), f"{who} evaluates other examples.")


def _check_gradients(task: Any, who: str) -> None:
    """The losses can be differentiated with respect to the gates of heads."""
    network: nn.Module = task.network
    batch = next(iter(task.batches("select")))
    losses = task.losses(network, batch)
    require(losses.requires_grad, f"{who} has losses without gradients, so that no gradient score can be made.")
    require(Heads(task.model).index is not None, f"{who} runs a model whose heads cannot be found.")
