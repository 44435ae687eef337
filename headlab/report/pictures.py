"""Which figures a run gets, each with a file name, a caption and words for those who cannot see it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from headlab.base.errors import unknown_name
from headlab.base.masks import head_names
from headlab.report.facts import bounds, define, told_by
from headlab.report.figures import (
    attention_grid,
    cluster_map,
    entropy_by_layer,
    heads_over_training,
    heat_map,
    label_map,
    mass_by_layer,
    model_view,
    pareto,
    pruning_by_kind,
    pruning_curve,
    save_figure,
    sink_map,
)
from headlab.report.figures.by_layer import MASSES
from headlab.report.figures.style import FORMATS
from headlab.report.series import training_series
from headlab.report.sweep_sentences import basis
from headlab.runs.columns import STATISTICS
from headlab.runs.files import FIGURES
from headlab.runs.maps import AttentionMap
from headlab.runs.similarity import map_distances
from headlab.runs.stored_run import Run, find_runs, read_run
from headlab.runs.tables import HEAD_INDEX, label_columns, score_columns

MOST_MAPS = 12  # in one grid
LEARNED = {"hard_concrete", "exact_k"}  # strategies whose cuts are points of a front rather than of a curve
MOST_GRIDS = 4  # that a command leaves
BRIEF = ("entropy_norm", "prev_mass", "separator_mass", "first_mass")
_LABEL_CAPTION = (
    "Labels of all heads: letters = labels of a head (of more than six, the first four and how many more), colour = "
    "the first of them, the one whose score is furthest above its threshold (general ones, such as a fixed offset, "
    "give way to special ones, such as the previous token). A label that comes first nowhere has no colour. "
    "Undefined: it cannot be decided on these texts. Hatched: no label is defined."
)


class Picture(NamedTuple):
    """One figure of a run; `section` is labels, scores, statistics, maps or curves; `wide` ones need two columns."""

    section: str
    stem: str
    figure: Figure
    caption: str
    wide: bool


def pictures(run: Run) -> Iterator[Picture]:
    """All figures of a run: labels, statistics and scores by head and by layer, maps, clusters, pruning curves."""
    if run.heads is not None and len(run.heads):
        if label_columns(run.heads):
            yield _picture("labels", "labels", label_map(run.heads), _label_caption(run))
        known = [column for column in STATISTICS if column in run.heads.columns]
        yield from _heat_maps(run, [*score_columns(run.heads), *known])  # those over words alone are in the table
        yield from _by_layer(run.heads)
    yield from _attention(run)
    yield from _many_maps(run)
    yield from _curves(run)
    yield from _paretos(run)
    yield from _by_kind(run)
    yield from _over_training(run)


def main_pictures(run: Run) -> Iterator[Picture]:
    """The few figures that a page carries, for print and for readers without scripts: label map and curves."""
    if run.heads is not None and len(run.heads) and label_columns(run.heads):
        yield _picture("labels", "labels", label_map(run.heads), _label_caption(run))
    yield from _curves(run)
    if run.sweep is not None and LEARNED & set(run.sweep["strategy"].astype(str)):
        yield from _paretos(run)
    yield from _by_kind(run)


def brief_pictures(run: Run) -> Iterator[Picture]:
    """What a command leaves beside its tables: label map, scores, four statistics, maps of a few texts, curves."""
    if run.heads is not None and len(run.heads):
        if label_columns(run.heads):
            yield _picture("labels", "labels", label_map(run.heads), _label_caption(run))
        known = [column for column in BRIEF if column in run.heads.columns]
        yield from _heat_maps(run, [*score_columns(run.heads), *known])
    yield from itertools.islice(_attention(run), MOST_GRIDS)
    yield from _curves(run)


def _label_caption(run: Run) -> str:
    return _LABEL_CAPTION + (f" Decided on {basis(run.n_texts, 'text')}." if run.n_texts is not None else "")


def _picture(section: str, stem: str, figure: Figure, caption: str) -> Picture:
    return Picture(section, stem, figure, caption, figure.get_size_inches()[0] > 4)


def _heat_maps(run: Run, columns: Iterable[str]) -> Iterator[Picture]:
    assert run.heads is not None
    for column in columns:
        if run.heads[column].notna().any():
            meaning = define(column)
            text = f"{meaning.title[:1].upper()}{meaning.title[1:]}. {meaning.text}".strip()
            section = "scores" if column.startswith("score_") else "statistics"
            yield _picture(section, f"heat-{column.replace(':', '-')}", heat_map(run.heads, column), text)


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
        figure = attention_grid(shown, names=names)
        title = f"Text {text}, {side}-attention, {_layers(shown)}"
        if len(maps) > MOST_MAPS:
            title += f": the first {MOST_MAPS} of {len(maps)} stored maps, which are of {_layers(maps)}"
        figure.suptitle(title, fontsize=8)
        yield _picture(
            "maps", f"attention-{side}-{text}", figure, f"Attention maps. {title}. Rows are queries, columns are keys."
        )


def _layers(maps: Iterable[AttentionMap]) -> str:
    """`layer 0 only`, `layers 0 to 5` or `layers 1, 4`."""
    found = sorted({item.layer for item in maps})
    if len(found) == 1:
        return f"layer {found[0]} only"
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"layers {found[0]} to {found[-1]}"
    return f"layers {', '.join(map(str, found))}"


def _curves(run: Run) -> Iterator[Picture]:
    if run.sweep is None or run.sweep.empty:
        return
    settings = ["kinds", "ablation", "split"]
    # Rungs of learned gates (`penalty=0.01`) are single points, not cuts of one order.
    sweep = run.sweep[~run.sweep["budget"].astype(str).str.contains("=")]
    several = sweep.groupby(settings, dropna=False).ngroups > 1
    for (kinds, ablation, split), rows in sweep.groupby(settings, sort=False, dropna=False):
        for metric in dict.fromkeys(rows["metric"]):
            stem = "-".join(["curve", str(metric), *([str(kinds), str(ablation), str(split)] if several else [])])
            title = define(str(metric)).title
            yield _picture(
                "curves",
                _file_stem(stem),
                pruning_curve(rows, str(metric)),
                f"{title[:1].upper()}{title[1:]} as heads are removed ({kinds}; ablation: {ablation}; "
                f"{basis(int(rows['n_examples'].iloc[0]), 'example')}, {split} split). Bars: 95 % "
                f"interval of the drop{', cut at what the metric can reach' if bounds(str(metric)) else ''}. "
                f"Band: random orders.",
            )


def _by_layer(heads: pd.DataFrame) -> Iterator[Picture]:
    there = {c for c in heads.columns if heads[c].notna().any()}
    if "entropy" in there:
        yield _picture(
            "statistics",
            "entropy-by-layer",
            entropy_by_layer(heads),
            "Entropy of every head by layer; lines: mean of the layer.",
        )
    if there & set(MASSES):
        yield _picture(
            "statistics",
            "mass-by-layer",
            mass_by_layer(heads),
            "Attention to the first token, separators and neighbours by layer; below, where there is one, "
            "the gradient score.",
        )
    if "first_mass" in there:
        yield _picture(
            "statistics", "sinks", sink_map(heads), "Attention to the first token; outlined: heads with the label sink."
        )


def _many_maps(run: Run) -> Iterator[Picture]:
    """The model view of the first text of each kind of attention, and the cluster map of the heads with maps."""
    for kind in dict.fromkeys(item.kind for item in run.maps):
        first = next(item.text for item in run.maps if item.kind == kind)
        shown = [item for item in run.maps if item.kind == kind and item.text == first]
        if len({(m.layer, m.head) for m in shown}) > 1:
            yield _picture(
                "maps",
                f"model-view-{kind}",
                model_view(run.maps, kind=kind),
                f"All {len(shown)} stored maps of text {first}: {kind}, {_layers(shown)} (layers down, heads across).",
            )
    if len(map_distances(run.maps)) > 2:
        yield _picture(
            "maps",
            "clusters",
            cluster_map(run.maps, run.heads),
            "Heads with alike attention near each other: Jensen-Shannon divergence, multidimensional scaling.",
        )


def _paretos(run: Run) -> Iterator[Picture]:
    for metric, stem, n in _metrics(run):
        assert run.sweep is not None
        yield _picture(
            "curves",
            f"pareto-{stem}",
            pareto(run.sweep, metric),
            f"Every cut that was tested, and the front of those that no other beats; {n}.",
        )


def _by_kind(run: Run) -> Iterator[Picture]:
    for metric, stem, n in _metrics(run):
        assert run.sweep is not None
        if run.sweep["kinds"].nunique() > 1:
            yield _picture(
                "curves",
                f"kinds-{stem}",
                pruning_by_kind(run.sweep, metric),
                f"Each kind of attention pruned alone; {n}.",
            )


def _metrics(run: Run) -> Iterator[tuple[str, str, str]]:
    """Metrics of a sweep, each as a part of a file's name and with the number of examples in words."""
    if run.sweep is None or run.sweep.empty:
        return
    for metric in dict.fromkeys(map(str, run.sweep["metric"])):
        n = basis(int(run.sweep.loc[run.sweep["metric"] == metric, "n_examples"].min()), "example")
        yield metric, _file_stem(metric), n


def _file_stem(text: str) -> str:
    """The text with what file names had better not hold replaced."""
    return re.sub(r"[^\w.+-]+", "_", text)


def _over_training(run: Run) -> Iterator[Picture]:
    """The scores of the labels, where the run has a table of heads over training."""
    for name, rows in training_series(run.training) if run.training is not None else ():
        tables = {int(step): table.set_index(list(HEAD_INDEX)) for step, table in rows.groupby("step")}
        for column in (c for c in map(str, rows.columns) if c.endswith("_score") and rows[c].notna().any()):
            stem = _file_stem(f"training-{name}-{column}")
            if len(tables) > 1:
                yield _picture(
                    "training",
                    stem,
                    heads_over_training(tables, column),
                    f"{name}: {define(column).title} of every head over training.",
                )


def training_pictures(runs: Iterable[Run]) -> Iterator[Picture]:
    """Heads over training, where several runs of the same heads name the step of their checkpoint."""
    steps = {run.step: run.heads for run in runs if run.step is not None and run.heads is not None}
    tables = {step: heads for step, heads in steps.items() if step is not None and heads is not None}
    if len(tables) < 2 or len({tuple(heads.index) for heads in tables.values()}) > 1:
        return
    for column in (c for c in STATISTICS if all(c in heads.columns for heads in tables.values())):
        if any(heads[column].notna().any() for heads in tables.values()):
            yield _picture(
                "training",
                f"training-{column}",
                heads_over_training(tables, column),
                f"{define(column).title} of every head over training.",
            )


def check_formats(formats: Iterable[str]) -> list[str]:
    """The formats as a list; raises UsageError for one that is not png, svg or pdf."""
    found = list(dict.fromkeys(formats))
    for format in found:
        if format not in FORMATS:
            raise unknown_name("figure format", format, FORMATS)
    return found


def write_brief(folder: str | Path, formats: Iterable[str] = ("png", "svg")) -> list[Path]:
    """Write the figures that a command leaves into the folder's `figures/`; returns the paths."""
    folder = Path(folder)
    run = read_run(folder, folder.name)
    with told_by([run]):
        return _saved(folder, brief_pictures(run), formats)


def write_figures(folders: str | Path | Iterable[str | Path], formats: Iterable[str] = ("png", "svg")) -> list[Path]:
    """Write every figure of every run into its folder's `figures/`; returns the paths.

    Raises DataError for a folder without tables, UsageError for an unknown format or an unwritable folder.
    """
    given = [Path(folders)] if isinstance(folders, (str, Path)) else [Path(folder) for folder in folders]
    runs, formats = find_runs(given), check_formats(formats)
    with told_by(runs):
        paths = [path for run in runs for path in _saved(run.folder, pictures(run), formats)]
        return paths + _saved(given[0], training_pictures(runs), formats)


def _saved(folder: Path, drawn: Iterable[Picture], formats: Iterable[str]) -> list[Path]:
    formats = list(formats)
    return [path for one in drawn for path in save_figure(one.figure, folder / FIGURES / one.stem, formats)]
