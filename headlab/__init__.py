"""What each attention head of a transformer looks at, whether it matters, and whether it can go."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headlab.base.errors import HeadlabError

if TYPE_CHECKING:
    from headlab.attention.change.key_gradients import key_gradients as key_gradients
    from headlab.attention.heads import Heads as Heads
    from headlab.attention.observe.similarity import head_distances as head_distances
    from headlab.attention.reach.declared import DeclaredSite as DeclaredSite
    from headlab.base.masks import HeadId as HeadId
    from headlab.base.masks import HeadMask as HeadMask
    from headlab.base.masks import parse_heads as parse_heads
    from headlab.commands.plugins import load_plugins as load_plugins
    from headlab.labels import load_labels as load_labels
    from headlab.models import Batch as Batch
    from headlab.models import Tokens as Tokens
    from headlab.models import open_model as open_model
    from headlab.models.texts.encoding import read_texts as read_texts
    from headlab.models.texts.encoding import text_batches as text_batches
    from headlab.pruning.orderings import order as order
    from headlab.pruning.sweep import sweep as sweep
    from headlab.report.notebook import show as show
    from headlab.report.page.page import write_report as write_report
    from headlab.runs.tables import load_table as load_table
    from headlab.runs.tables import save as save
    from headlab.scores import score as score
    from headlab.tasks import task as task

__version__ = "0.1.0"

# Each name is imported when it is first used: `import headlab` and `headlab --help` load neither torch nor matplotlib.
_HOME = {
    "Batch": "headlab.models",
    "DeclaredSite": "headlab.attention.reach.declared",
    "Tokens": "headlab.models",
    "Heads": "headlab.attention.heads",
    "HeadId": "headlab.base.masks",
    "HeadMask": "headlab.base.masks",
    "parse_heads": "headlab.base.masks",
    "head_distances": "headlab.attention.observe.similarity",
    "key_gradients": "headlab.attention.change.key_gradients",
    "load_labels": "headlab.labels",
    "load_plugins": "headlab.commands.plugins",
    "open_model": "headlab.models",
    "read_texts": "headlab.models.texts.encoding",
    "text_batches": "headlab.models.texts.encoding",
    "order": "headlab.pruning.orderings",
    "sweep": "headlab.pruning.sweep",
    "score": "headlab.scores",
    "task": "headlab.tasks",
    "load_table": "headlab.runs.tables",
    "save": "headlab.runs.tables",
    "show": "headlab.report.notebook",
    "write_report": "headlab.report.page.page",
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
