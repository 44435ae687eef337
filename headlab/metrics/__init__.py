"""Metrics: numbers computed from summed per-example columns, so that a bootstrap needs no model."""

from __future__ import annotations

from headlab.base.registry import Registry
from headlab.metrics.metric import Metric as Metric

METRICS: Registry[Metric] = Registry(
    "headlab.metrics", "metric", lambda plugin: isinstance(plugin, Metric), besides=("metric", "overlap")
)


def metric(name: str) -> Metric:
    """The metric of that name; raises UsageError with the closest name and the list where there is none."""
    return METRICS.load(name)
