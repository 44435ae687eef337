"""What a run folder keeps of plugins that did not come with headlab, so that whoever reads it need not have them."""

from __future__ import annotations

from typing import Any

FIELDS = ("title", "unit", "text", "letter", "colour", "general", "bounds", "higher_is_better", "best")


def facts_of(plugin: Any) -> dict[str, Any]:
    """What pages show of a label, score or metric, by field; what it does not say is left out, and None says nothing.

    Commands write it into `meta.json` under `notes.facts`, by column: `<label>`, `score_<score>` or `<metric>`.
    """
    found = {name: getattr(plugin, name, None) for name in FIELDS}
    return {name: value for name, value in found.items() if value not in (None, "")}
