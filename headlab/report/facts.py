"""What every column, label, score and metric is called and means, as tables and plugins themselves say it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from headlab.base.registry import Registry
from headlab.labels import described
from headlab.metrics import METRICS
from headlab.runs.columns import EVIDENCE, IDENTITY, STATISTICS, Column
from headlab.runs.plugin_facts import facts_of
from headlab.runs.stored_run import Run
from headlab.scores import SCORES

_told: ContextVar[Mapping[str, Mapping[str, Any]]] = ContextVar("facts told by runs", default=MappingProxyType({}))


@contextlib.contextmanager
def told_by(runs: Iterable[Run]) -> Iterator[None]:
    """Within it, what run folders say of plugins that did not come with headlab goes before what is known here."""
    token = _told.set({name: facts for run in runs for name, facts in run.facts.items()})
    try:
        yield
    finally:
        _told.reset(token)


def label_facts(name: str) -> Mapping[str, Any]:
    """Title, text, letter, colour and generality of a label; empty for one that is not known."""
    return _told.get().get(name) or facts_of(described(name))


def metric_facts(name: str) -> Mapping[str, Any]:
    """Title, unit, text, bounds and direction of a metric; empty for one that is not known."""
    return _told.get().get(name) or _facts(METRICS, name)


def bounds(metric: str) -> tuple[float, float] | None:
    """The values that a metric cannot leave, where there are such."""
    found = metric_facts(metric).get("bounds")
    return None if found is None else (found[0], found[1])


def best(metric: str) -> str:
    """Which values of a metric are good, in words; "" for one that is not known."""
    return metric_facts(metric).get("best", "")


def lower_is_better(metric: str) -> bool:
    """Whether a metric improves by falling; False for one that is not known."""
    return metric_facts(metric).get("higher_is_better") is False


def define(column: str) -> Column:
    """Title, unit and text of any column, label or metric; its name spelt out where nothing else is known."""
    stem, _, suffix = column.rpartition("_")
    if column in IDENTITY or column in STATISTICS:
        return IDENTITY.get(column) or STATISTICS[column]
    if column.startswith("score_"):
        return _of_score(column)
    facts = {} if ":" in column and suffix in EVIDENCE else label_facts(column) or metric_facts(column)
    if facts:
        known = _column(column, facts)
        return known._replace(text=f"{known.text.rstrip('.')}; {facts['best']}.") if "best" in facts else known
    if stem and suffix == "words":
        known = define(stem)
        return known._replace(title=f"{known.title}, words", text=f"{known.text} Over word queries alone.")
    if suffix == "drop" and (metric := metric_facts(stem)):  # of single heads
        text = "How much worse the metric is with this head alone removed."
        return Column(f"drop of {define(stem).title} without the head", metric.get("unit", ""), text)
    if stem and suffix in EVIDENCE:
        return EVIDENCE[suffix]._replace(title=f"{define(stem).title}: {EVIDENCE[suffix].title}")
    return _column(column, {})


def _of_score(column: str) -> Column:
    """Of `score_<name>` or `score_<name>:<variant>`; a score that is not known is one of higher = more important."""
    base, _, variant = column.partition(":")
    facts = _told.get().get(base) or _facts(SCORES, base.removeprefix("score_"))
    title, text = f"{_spaced(base.removeprefix('score_'))} score", "Importance of the head; higher = more important."
    known = _column(base, {"title": title, "text": text, **facts})
    return known._replace(title=f"{known.title} ({_spaced(variant)})") if variant else known


def _facts(registry: Registry[Any], name: str) -> Mapping[str, Any]:
    return facts_of(registry.load(name)) if name in registry.names() else {}


def _column(name: str, facts: Mapping[str, Any]) -> Column:
    return Column(facts.get("title") or _spaced(name), facts.get("unit", ""), facts.get("text", ""))


def _spaced(name: str) -> str:
    return name.replace("_", " ")
