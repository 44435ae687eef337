"""Label map: every head of a model as one cell, coloured by its main label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from headlab.base.errors import DataError, unknown_name
from headlab.report.colours import MORE_COLOURS, PALE
from headlab.report.facts import define, label_facts
from headlab.report.figures.grid import by_kind, cell_width, finish, hatch, panels, require_heads, write_in_cell
from headlab.report.figures.style import is_dark, styled
from headlab.runs.tables import label_columns

MOST_MARKS = 6  # letters in one cell, in two lines
_NOTE = (
    "Letters: labels of a head, main one first.\nColour: main label, the furthest above its threshold,\n"
    "special ones before general ones."
)


@styled
def label_map(
    heads: pd.DataFrame, *, labels: Sequence[str] | None = None, ax: Axes | Sequence[Axes] | None = None
) -> Figure:
    """Draw one cell for each head: colour = main label, letters = all its labels, main one first.

    The main label is, among those the head carries, the one whose score is furthest above its threshold; general
    ones (a fixed offset, its neighbourhood) give way to special ones (the previous token). Heads without a label are
    pale, heads for which no label is defined are hatched. `ax` takes one Axes for each kind of attention.
    Raises DataError where the table has no labels, UsageError for an unknown one.
    """
    heads = require_heads(heads)
    known = label_columns(heads)
    if not known:
        raise DataError("The head table has no labels.", "Observe with labels=[...], or headlab dump --labels A,B.")
    for name in labels or ():
        if name not in known:
            raise unknown_name("label", name, known)
    chosen = list(labels or known)
    keys = legend_keys(chosen)
    figure, axes = panels(heads, ax, extra=1.1 + 0.17 * ((len(chosen) + 2) // 2))
    counts = {name: int(heads[name].fillna(False).astype(bool).sum()) for name in chosen if heads[name].notna().any()}
    first: list[str] = []
    for panel, (kind, rows) in zip(axes, by_kind(heads), strict=True):
        finish(panel, kind, rows, title=len(axes) > 1)
        marked = cell_width(panel, rows.index.get_level_values("head").max() + 1) > 0.13
        for (layer, head), row in rows.iterrows():
            carried = carried_labels(row, chosen)
            if carried is None:
                hatch(panel, layer, head)
                continue
            _cell(panel, layer, head, carried, keys, marked)
            first.append(carried[0] if carried else "none")
    _legend(figure, axes, keys, counts, first)
    return figure


def carried_labels(row: pd.Series, labels: Sequence[str]) -> list[str] | None:
    """The labels that a head carries, main one first; None where all of them are undefined."""
    if all(pd.isna(row[name]) for name in labels):
        return None
    carried = [name for name in labels if not pd.isna(row[name]) and bool(row[name])]
    return sorted(carried, key=lambda name: (label_facts(name).get("general", False), -_margin(row, name)))


def _margin(row: pd.Series, label: str) -> float:
    """How far the score is above the threshold, as a share of what is possible; the score itself without one."""
    score, threshold = float(row[f"{label}_score"]), row.get(f"{label}_threshold", 0.0)
    return score if pd.isna(threshold) or threshold >= 1 else (score - float(threshold)) / (1 - float(threshold))


def legend_keys(labels: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """(letter, colour) of each label: its own, which stay from figure to figure, where no other label has them.

    Other labels get what is left; the letters that are left are small ones.
    """
    own: dict[str, tuple[str, str]] = {}
    taken: set[str] = set()
    for name in labels:
        facts = label_facts(name)
        pair = facts.get("letter", ""), facts.get("colour", "")
        if all(pair) and not taken & {*pair}:
            own[name] = pair
            taken |= {*pair}
    marks = [mark for mark in ascii_lowercase if mark not in taken]
    colours = [colour for colour in MORE_COLOURS if colour not in taken] or list(MORE_COLOURS)
    others = [name for name in labels if name not in own]
    new = {name: (marks[i % len(marks)], colours[i % len(colours)]) for i, name in enumerate(others)}
    return {name: own.get(name) or new[name] for name in labels}


def _cell(axes: Axes, layer: int, head: int, carried: Sequence[str], keys: Mapping, marked: bool) -> None:
    colour = keys[carried[0]][1] if carried else PALE
    axes.add_patch(
        Rectangle(
            (head - 0.46, layer - 0.46),
            0.92,
            0.92,
            facecolor=colour,
            linewidth=0,
            gid=carried[0] if carried else "none",
        )
    )
    if carried and marked:
        text = cell_text([keys[name][0] for name in carried])
        size = 6 if len(text) < 3 else 4.5 if "\n" not in text else 4
        write_in_cell(axes, layer, head, text, size=size, colour="white" if is_dark(colour) else "black")


def cell_text(marks: Sequence[str]) -> str:
    """All marks of a head in lines of three; of more than six, the first four and how many more there are."""
    shown = [*marks] if len(marks) <= MOST_MARKS else [*marks[:4], f"+{len(marks) - 4}"]
    return "".join(shown[:3]) + ("\n" + "".join(shown[3:]) if len(shown) > 3 else "")


def _legend(
    figure: Figure, axes: Sequence[Axes], keys: Mapping, counts: Mapping[str, int], first: Sequence[str]
) -> None:
    """Every label with its letter and count, or undefined; a colour only where a cell has it."""
    entries = [
        Patch(
            facecolor=colour if name in first else "none",
            label=f"{mark}  {define(name).title}: {counts.get(name, 'undefined')}",
        )
        for name, (mark, colour) in keys.items()
    ]
    entries.append(Patch(facecolor=PALE, label=f"none: {first.count('none')}"))
    columns = 2 if figure.get_size_inches()[0] < 5 else 4
    if axes[0].figure is figure and figure.get_layout_engine() is not None:
        figure.legend(
            handles=entries,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            handlelength=1,
            handleheight=1,
            columnspacing=1.2,
            title=_NOTE,
            title_fontsize=6,
        )
    else:
        axes[-1].legend(
            handles=entries,
            loc="upper left",
            bbox_to_anchor=(1.02, 1),
            frameon=False,
            handlelength=1,
            title=_NOTE,
            title_fontsize=6,
        )
