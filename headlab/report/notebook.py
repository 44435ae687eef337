"""What notebooks show: the head map, the attention viewer and masks as HTML that stands on its own."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headlab.base.masks import HeadMask
from headlab.report.colours import COLOURS, PALE
from headlab.report.figures.grid import require_heads
from headlab.runs.maps import AttentionMap
from headlab.runs.stored_run import Run

HEIGHT = 760  # CSS pixels of the inline page


class Shown:
    """Something that a notebook displays; `html` is also good for a file."""

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        return self.html


def show(
    heads: pd.DataFrame | None = None,
    maps: Sequence[AttentionMap] = (),
    *,
    sweep: pd.DataFrame | None = None,
    title: str = "heads",
    height: int = HEIGHT,
) -> Shown:
    """The interactive head map of a table, the viewer of maps and the curves of a sweep, for a notebook."""
    return Shown(heads_html(heads, maps, sweep=sweep, title=title, height=height))


def heads_html(
    heads: pd.DataFrame | None = None,
    maps: Sequence[AttentionMap] = (),
    *,
    sweep: pd.DataFrame | None = None,
    title: str = "heads",
    height: int = HEIGHT,
) -> str:
    """The same as HTML: an inline frame that holds its page, shares nothing with the notebook and loads nothing."""
    from headlab.report.page.page import render

    table = None if heads is None else require_heads(heads)
    page = render([Run(title, Path("."), table, sweep, maps=list(maps))], embedded=True)
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox="allow-scripts" title="{html.escape(title)}" '
        f'style="width: 100%; height: {int(height)}px; border: 0"></iframe>'
    )


def maps_html(maps: Sequence[AttentionMap], *, title: str = "attention", height: int = HEIGHT) -> str:
    """The attention viewer of some maps as HTML for a notebook."""
    return heads_html(None, maps, title=title, height=height)


def map_html(attention_map: AttentionMap) -> str:
    """The viewer of one map."""
    return maps_html([attention_map])


def model_html(heads: Any) -> str:
    """An opened model's heads as a picture without scripts: one square for each, and what was proven about them."""
    lines = "".join(
        f"<li>{'proven' if proof.passed else 'FAILED'}: {html.escape(f'{proof.name} ({proof.detail})')}</li>"
        for proof in heads.proofs
    )
    picture = _squares(heads.heads_per_layer, set(), f"{sum(heads.heads_per_layer.values())} heads")
    seen = html.escape(f"tier {heads.tier}: {heads.view.name}")
    return f"<div><p><b>{html.escape(repr(heads))}</b>, {seen}</p>{picture}<ul>{lines}</ul></div>"


def checkpoint_html(checkpoint: Any) -> str:
    """An opened checkpoint as a table of what describes it: name, revision, class, type of numbers, versions."""
    rows = ((html.escape(str(name)), html.escape(str(value))) for name, value in checkpoint.describe().items())
    cells = (f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def mask_html(mask: HeadMask) -> str:
    """A mask as a picture without scripts: one square for each head, blue = kept, pale and crossed = removed."""
    sizes, gone = mask.heads_per_layer, {tuple(head) for head in mask.removed}
    total = sum(sizes.values())
    words = f"{total - len(gone)} of {total} heads kept, {len(gone)} removed"
    return f"<div><p>{words}</p>{_squares(sizes, gone, words)}</div>"


def _squares(heads_per_layer: Mapping[tuple[str, int], int], gone: Collection[tuple], words: str) -> str:
    """One row of squares for each layer, under the name of its kind."""
    parts, top, last = [], 0, None
    for (kind, layer), n_heads in sorted(heads_per_layer.items()):
        if kind != last:
            top += 18
            parts.append(f'<text x="0" y="{top - 5}" font-size="11">{html.escape(kind)}</text>')
            last = kind
        parts += [_square(26 + 13 * head, top, (kind, layer, head) in gone) for head in range(n_heads)]
        parts.append(f'<text x="20" y="{top + 10}" font-size="9" text-anchor="end">{layer}</text>')
        top += 13
    width = 30 + 13 * max(heads_per_layer.values(), default=0)
    return (
        f'<svg width="{width}" height="{top + 2}" role="img" aria-label="{words}" '
        f'font-family="sans-serif">{"".join(parts)}</svg>'
    )


def _square(x: int, y: int, removed: bool) -> str:
    square = f'<rect x="{x}" y="{y}" width="11" height="11" fill="{PALE if removed else COLOURS[0]}"/>'
    return square + (f'<path d="M{x + 2} {y + 2}l7 7m0 -7l-7 7" stroke="#555"/>' if removed else "")


DISPLAYS: Mapping[str, Callable[[Any], str]] = {  # by the name of the class; headlab.base.display looks here
    "AttentionMap": map_html,
    "Checkpoint": checkpoint_html,
    "HeadMask": mask_html,
    "Heads": model_html,
    "Maps": maps_html,
}
