"""Which figures a run gets, each with a file name, a caption and words for those who cannot see it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from headlab.report.definitions import STATISTICS, define
from headlab.report.figures import attention_grid, heat_map, label_map, pruning_curve, save_figure
from headlab.report.maps import AttentionMap
from headlab.report.runs import Run, find_runs
from headlab.tables import head_names, label_columns, score_columns

MOST_MAPS = 12  # in one grid
_LABEL_CAPTION = (
    "Labels of all heads: letters = all labels of a head, colour = the one whose score is furthest above its threshold "
    "(a fixed offset gives way to previous token, next token and itself). Hatched: no label is defined."
)


class Picture(NamedTuple):
    """One figure of a run; `section` is labels, scores, statistics, maps or curves; `wide` ones need two columns."""

    section: str
    stem: str
    figure: Figure
    caption: str
    wide: bool


def pictures(run: Run) -> Iterator[Picture]:
    """The figures of a run: label map, attention maps, a heat map of each statistic and score, pruning curves."""
    if run.heads is not None and len(run.heads):
        if label_columns(run.heads):
            yield _picture("labels", "labels", label_map(run.heads), _LABEL_CAPTION)
        known = [column for column in STATISTICS if column in run.heads.columns]
        yield from _heat_maps(run, [*score_columns(run.heads), *known])  # those over words alone are in the table
    yield from _attention(run)
    yield from _curves(run)


def main_pictures(run: Run) -> Iterator[Picture]:
    """The few figures that a page carries: label map, scores, curves, attention of the first text."""
    if run.heads is not None and len(run.heads):
        if label_columns(run.heads):
            yield _picture("labels", "labels", label_map(run.heads), _LABEL_CAPTION)
        yield from _heat_maps(run, score_columns(run.heads)[:3])
    yield from itertools.islice(_attention(run), 1)
    yield from _curves(run)


def _picture(section: str, stem: str, figure: Figure, caption: str) -> Picture:
    return Picture(section, stem, figure, caption, figure.get_size_inches()[0] > 4)


def _heat_maps(run: Run, columns: Iterable[str]) -> Iterator[Picture]:
    assert run.heads is not None
    for column in columns:
        if run.heads[column].notna().any():
            meaning = define(column)
            text = f"{meaning.title[:1].upper()}{meaning.title[1:]}. {meaning.text}".strip()
            section = "scores" if column.startswith("score_") else "statistics"
            yield _picture(section, f"heat-{column}", heat_map(run.heads, column), text)


def _attention(run: Run) -> Iterator[Picture]:
    """One grid for each text, of the first maps of it."""
    by_text: dict[tuple[str, int], list[AttentionMap]] = {}
    for item in run.maps:
        side = "cross" if item.kind == "cross" else "self"
        by_text.setdefault((side, item.text), []).append(item)
    kinds = {item.kind for item in run.maps}
    if run.heads is not None:
        kinds |= set(run.heads.index.get_level_values("kind"))
    for (side, text), maps in by_text.items():
        shown = maps[:MOST_MAPS]
        names = head_names([(m.kind, m.layer, m.head) for m in shown], single_stack=len(kinds) == 1)
        more = f" The first {MOST_MAPS} of {len(maps)} stored maps." if len(maps) > MOST_MAPS else ""
        yield _picture("maps", f"attention-{side}-{text}", attention_grid(shown, names=names),
                       f"Attention maps on text {text}: rows are queries, columns are keys.{more}")  # fmt: skip


def _curves(run: Run) -> Iterator[Picture]:
    if run.sweep is None or run.sweep.empty:
        return
    settings = ["kinds", "ablation", "split"]
    several = run.sweep.groupby(settings, dropna=False).ngroups > 1
    for (kinds, ablation, split), rows in run.sweep.groupby(settings, sort=False, dropna=False):
        for metric in dict.fromkeys(rows["metric"]):
            stem = "-".join(["curve", str(metric), *([str(kinds), str(ablation), str(split)] if several else [])])
            title = define(str(metric)).title
            yield _picture("curves", re.sub(r"[^\w.+-]+", "_", stem), pruning_curve(rows, str(metric)),
                           f"{title[:1].upper()}{title[1:]} as heads are removed ({kinds}; ablation: {ablation}; "
                           f"{rows['n_examples'].iloc[0]} examples of the {split} split). Bars: 95 % interval of the "
                           f"drop. Band: random orders.")  # fmt: skip


def write_figures(folders: str | Path | Iterable[str | Path], formats: Iterable[str] = ("png", "svg")) -> list[Path]:
    """Write every figure of every run into its folder's `figures/`; returns the paths.

    Raises DataError for a folder without tables, UsageError for an unknown format or an unwritable folder.
    """
    runs = find_runs([folders] if isinstance(folders, (str, Path)) else folders)
    formats = list(formats)
    return [path for run in runs for picture in pictures(run)
            for path in save_figure(picture.figure, run.folder / "figures" / picture.stem, formats)]  # fmt: skip
