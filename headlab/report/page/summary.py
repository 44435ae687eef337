"""What a run found, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from headlab.base.masks import head_names
from headlab.report.facts import define
from headlab.report.page.compare import Pair
from headlab.report.series import training_series
from headlab.report.sweep_sentences import about_sweep, number, small_sample
from headlab.runs.stored_run import Run
from headlab.runs.tables import label_columns

__all__ = ["compare_sentences", "number", "summarize"]

MOST_NAMES = 6  # heads named after a label; the table has them all


def summarize(run: Run) -> list[str]:
    """Sentences on what was run, on how many heads, which labels they carry and what removing them costs."""
    sentences = [*_about(run)]
    if run.heads is not None:
        sentences += _about_labels(run.heads, run.n_texts)
    if run.sweep is not None:
        sentences += about_sweep(run.sweep)
    if run.training is not None:
        sentences += _about_training(run.training)
    return sentences


def compare_sentences(runs: Sequence[Run], pairs: Sequence[Pair]) -> list[str]:
    """Sentences on what several runs have in common: heads, how alike they are ranked, changed labels."""
    models = list(dict.fromkeys(run.model or run.name for run in runs))
    sentences = [f"{len(runs)} runs of {len(models)} model{'s' if len(models) > 1 else ''}: {_listed(models)}."]
    for pair in pairs:
        if pair.same_model:
            sentences.append(_about_pair(pair))
    if not any(pair.same_model for pair in pairs):
        sentences.append("No two runs look at the heads of one model, so labels are not compared.")
    return sentences


def _about_pair(pair: Pair) -> str:
    scores = pair.correlations[pair.correlations["column"].str.startswith("score_")]
    shown = scores if len(scores) else pair.correlations[pair.correlations["column"] == "entropy"]
    known = zip(shown["column"], shown["rho"], strict=True)
    parts = [f"their order by {define(c).title} agrees to {rho:.2f} (Spearman)" for c, rho in known if not pd.isna(rho)]
    changed = len(pair.label_changes)
    among = f"the {len(pair.labels)} labels that both decide" if len(pair.labels) > 1 else "the label that both decide"
    labels = "no label was decided in both"
    if pair.labels:
        labels = (
            f"{changed} of them differ{'s' if changed == 1 else ''} in {among}"
            if changed
            else f"none differs in {among}"
        )
    return f"{pair.left.title} and {pair.right.title} share {pair.n_shared} heads; {_listed([*parts, labels])}."


def _about_training(training: pd.DataFrame) -> Iterator[str]:
    """When the first head came to carry a label."""
    for name, rows in training_series(training):
        steps = sorted(rows["step"].unique())
        parts = []
        for label in label_columns(rows):
            carried = rows[rows[label].fillna(False).astype(bool)]["step"]
            parts.append(f"{define(label).title} {'never' if carried.empty else f'from step {carried.min()}'}")
        found = f"; labels: {_listed(parts)}" if parts else ""
        yield f"{name}: heads at {len(steps)} steps of training, {steps[0]} to {steps[-1]}{found}."


def _about(run: Run) -> Iterator[str]:
    name = run.model or run.name
    if run.heads is not None:
        yield f"{name}: {_extent(run.heads)}."
        rows = run.heads["n_queries"].max() if "n_queries" in run.heads else None
        if rows is not None and not pd.isna(rows):
            yield f"Statistics are means over {int(rows):,} query rows."
    elif run.training is None:
        yield f"{name}: no table of heads in this run{' yet' if run.meta.get('finished') is False else ''}."
    if run.meta.get("finished") is False and run.sweep is None and run.n_rows:
        yield f"A sweep goes on; masks evaluated so far: {run.n_rows}. Its table comes at the end."


def _extent(heads: pd.DataFrame) -> str:
    layers = heads.reset_index().groupby("kind", sort=False)["layer"].nunique()
    parts = [f"{n} {kind} layer{'s' if n > 1 else ''}" for kind, n in layers.items()]
    parts = [part.replace("cross layer", "cross-attention layer") for part in parts]
    return f"{len(heads)} attention head{'s' if len(heads) > 1 else ''} in {_listed(parts)}"


def _about_labels(heads: pd.DataFrame, n_texts: int | None) -> Iterator[str]:
    labels = label_columns(heads)
    if not labels:
        return
    named = pd.Series(head_names(heads.index), index=heads.index)
    carried = {label: heads[label].fillna(False).astype(bool) for label in labels}
    some = pd.concat(carried.values(), axis=1).any(axis=1)
    parts = [
        f"{define(label).title} {mask.sum()}{_names(named[mask])}" for label, mask in carried.items() if mask.any()
    ]
    yield f"{some.sum()} of {len(heads)} heads carry a label" + (f": {_listed(parts)}." if parts else ".")
    yield from _about_certainty(heads, carried, n_texts)
    undefined = [define(label).title for label in labels if heads[label].isna().all()]
    if undefined:
        yield f"Not defined on these texts: {_listed(undefined)}."


def _about_certainty(heads: pd.DataFrame, carried: Mapping[str, pd.Series], n_texts: int | None) -> Iterator[str]:
    """How many of the labels hold with their whole interval, and a warning where it comes from few texts."""
    total = sure = 0
    for label, mask in carried.items():
        low, threshold = heads.get(f"{label}_low"), heads.get(f"{label}_threshold")
        if low is not None and threshold is not None:
            total += int((mask & low.notna()).sum())
            sure += int((mask & (low > threshold)).sum())
    if total:
        over = "texts" if n_texts is None else f"{n_texts} text{'s' if n_texts != 1 else ''}"
        yield (
            f"{sure} of these {total} labels hold with their whole 95 % interval above the threshold (bootstrap "
            f"over {over})."
        )
        if n_texts is not None:
            yield from small_sample(n_texts, "text", "the intervals of the labels")


def _names(names: pd.Series) -> str:
    return f" ({', '.join(names)})" if len(names) <= MOST_NAMES else ""


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
