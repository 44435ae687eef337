"""Checks of a score of one's own: facts, settings, one number a head, and the same number whatever the batches."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from headlab import Batch, HeadlabError, Heads, Score, UsageError, score
from headlab.testing.checks import errors_told, left_as_found, require, require_alike, require_facts
from headlab.testing.examples import ExampleTask, example_heads

MISSPELT = "a_setting_that_no_score_has"
TOLERANCE = 2e-3


class WithoutGradients(ExampleTask):
    """A task whose loss cannot be differentiated."""

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return super().losses(model, batch).detach()


def check_score(score_: Score | type[Score], *, skip: Collection[str] = ()) -> None:
    """Raise AssertionError, with a sentence, where a score breaks a rule that headlab relies on.

    The score, or a class of scores with its default settings, is computed for a tiny decoder with random weights and
    a task over random tokens. `skip` leaves rules out: "batches" for a score that is learned batch by batch.
    """
    kind = score_ if isinstance(score_, type) else type(score_)
    require(issubclass(kind, Score), f"{kind.__name__} is no subclass of headlab.Score.")
    who = f"The score {getattr(kind, 'name', kind.__name__)}"
    _check_class(kind, who)
    made = kind() if isinstance(score_, type) else score_
    heads = example_heads()
    task: Any = ExampleTask(heads.subject.module)
    found = _check_values(made, heads, task, who)
    if "batches" not in skip:
        singles: Any = ExampleTask(heads.subject.module, batch_size=1)
        sentence = f"{who} depends on how the examples are batched."
        require_alike(score(made, heads, singles, seed=3), found, sentence, TOLERANCE)
    misspelt: Any = {MISSPELT: 1}
    try:
        score(made, heads, task, **misspelt)
    except UsageError as error:
        require(MISSPELT in str(error), f"{who} does not name a misspelt setting.")
    except Exception as error:
        raise AssertionError(f"{who} meets a misspelt setting with {type(error).__name__}, not UsageError.") from error
    else:
        raise AssertionError(f"{who} takes a setting that it does not have.")
    without: Any = WithoutGradients(heads.subject.module)
    _refuses(made, heads, without, "select", f"{who} meets a loss without gradients with {{}}, not a HeadlabError.")
    empty: Any = ExampleTask(heads.subject.module, n=1)
    _refuses(made, heads, empty, "report", f"{who} meets a split without examples with {{}}, not a HeadlabError.")


def _check_class(kind: type[Score], who: str) -> None:
    require_facts(kind, "score")
    frozen = dataclasses.is_dataclass(kind) and kind.__dict__.get("__dataclass_params__") is not None
    require(frozen and kind.__dataclass_params__.frozen, f"{who} is no frozen dataclass.")  # type: ignore[attr-defined]
    settings = {field.name for field in dataclasses.fields(kind)}
    for suffix, chosen in kind.variants.items():
        unknown = set(chosen) - settings
        require(not unknown, f"{who} has a variant {suffix} with a setting it does not have: {', '.join(unknown)}.")
    suffixed = kind.suffix is None or kind.suffix in settings
    require(suffixed, f"{who} has the suffix {kind.suffix}, which is none of its settings.")
    parameters = inspect.signature(kind.__call__).parameters
    require(len(parameters) == 2, f"{who} is not called with a context alone.")


def _check_values(made: Score, heads: Heads, task: Any, who: str) -> pd.Series:
    """The scores: one number a head, the same twice, the model as it was."""
    with errors_told(who), left_as_found(heads.subject.module, who):
        found = score(made, heads, task, seed=3)
    require(not np.isinf(found).any(), f"{who} gives an infinite value; NaN says that there is none.")
    require(found.notna().any(), f"{who} gives no head a value.")
    errors = found.attrs.get("standard_error")
    negative = errors is not None and (len(errors) != len(found) or min(errors) < 0)
    require(not negative, f"{who} has standard errors below 0, or not one a head.")
    require_alike(score(made, heads, task, seed=3), found, f"{who} gives another value under the same seed.")
    return found


def _refuses(made: Score, heads: Heads, task: Any, split: str, sentence: str) -> None:
    """Values or a HeadlabError, but no other error."""
    try:
        score(made, heads, task, split=split)
    except HeadlabError:
        pass
    except Exception as error:
        raise AssertionError(sentence.format(type(error).__name__)) from error
