"""How things look in a notebook, drawn by whoever can draw them, so that nothing below imports the report."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

GROUP = "headlab.displays"  # the entry points by which other packages draw classes of theirs
OWN = "headlab.report.notebook"  # has headlab's own, in DISPLAYS; found by name, installed or not


class Displayed:
    """A class that notebooks show as HTML, or as text where nobody draws it."""

    def _repr_html_(self) -> str | None:
        return html_of(self)


def html_of(shown: object) -> str | None:
    """HTML of an object for a notebook, by the name of its class; None, which means text, where nobody draws it."""
    name = type(shown).__name__
    if (own := importlib.import_module(OWN).DISPLAYS.get(name)) is not None:
        return own(shown)
    return next((str(entry.load()(shown)) for entry in entry_points(group=GROUP, name=name)), None)
