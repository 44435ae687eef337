"""How things look in a notebook: whoever can draw a class says so in the entry points `headlab.displays`."""

from __future__ import annotations

from importlib.metadata import entry_points

GROUP = "headlab.displays"


def html_of(shown: object) -> str | None:
    """HTML of an object for a notebook, by the entry point of its class's name; None, which means text, without one."""
    for entry in entry_points(group=GROUP, name=type(shown).__name__):
        return str(entry.load()(shown))
    return None
