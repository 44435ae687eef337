"""What each attention head of a transformer looks at, whether it matters, and whether it can go."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headlab.errors import HeadlabError

if TYPE_CHECKING:
    from headlab.attention.declared import DeclaredSite as DeclaredSite
    from headlab.attention.heads import Heads as Heads
    from headlab.attention.key_gradients import key_gradients as key_gradients
    from headlab.attention.masks import HeadId as HeadId
    from headlab.attention.masks import HeadMask as HeadMask
    from headlab.attention.masks import parse_heads as parse_heads
    from headlab.attention.relations import head_distances as head_distances
    from headlab.labels import load_labels as load_labels
    from headlab.models import Batch as Batch
    from headlab.models import Tokens as Tokens
    from headlab.models import open_model as open_model
    from headlab.models.texts import read_texts as read_texts
    from headlab.models.texts import text_batches as text_batches
    from headlab.pruning.orderings import order as order
    from headlab.pruning.sweep import sweep as sweep
    from headlab.report.notebook import show as show
    from headlab.report.page import write_report as write_report
    from headlab.scores import score as score
    from headlab.tables import load_table as load_table
    from headlab.tables import save as save
    from headlab.tasks import task as task

__version__ = "0.1.0"

# Each name is imported when it is first used: `import headlab` and `headlab --help` load neither torch nor matplotlib.
_HOME = {
    "Batch": "headlab.models",
    "DeclaredSite": "headlab.attention.declared",
    "Tokens": "headlab.models",
    "Heads": "headlab.attention.heads",
    "HeadId": "headlab.attention.masks",
    "HeadMask": "headlab.attention.masks",
    "parse_heads": "headlab.attention.masks",
    "head_distances": "headlab.attention.relations",
    "key_gradients": "headlab.attention.key_gradients",
    "load_labels": "headlab.labels",
    "open_model": "headlab.models",
    "read_texts": "headlab.models.texts",
    "text_batches": "headlab.models.texts",
    "order": "headlab.pruning.orderings",
    "sweep": "headlab.pruning.sweep",
    "score": "headlab.scores",
    "task": "headlab.tasks",
    "load_table": "headlab.tables",
    "save": "headlab.tables",
    "show": "headlab.report.notebook",
    "write_report": "headlab.report.page",
}

__all__ = ["HeadlabError", "__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headlab' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
