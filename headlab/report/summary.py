"""What a run found, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from headlab.report.compare import Pair
from headlab.report.definitions import METRICS, define
from headlab.report.runs import Run
from headlab.tables import head_names, label_columns

MOST_NAMES = 6  # heads named after a label; the table has them all


def summarize(run: Run) -> list[str]:
    """Sentences on what was run, on how many heads, which labels they carry and what removing them costs."""
    sentences = [*_about(run)]
    if run.heads is not None:
        sentences += _about_labels(run.heads)
    if run.sweep is not None:
        sentences += _about_sweep(run.sweep)
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
    labels = f"{changed} of them carr{'ies' if changed == 1 else 'y'} other labels" if changed else "no label differs"
    return f"{pair.left.title} and {pair.right.title} share {pair.n_shared} heads; {_listed([*parts, labels])}."


def _about(run: Run) -> Iterator[str]:
    name = run.model or run.name
    if run.heads is not None:
        yield f"{name}: {_extent(run.heads)}."
        rows = run.heads["n_queries"].max() if "n_queries" in run.heads else None
        if rows is not None and not pd.isna(rows):
            yield f"Statistics are means over {int(rows):,} query rows."
    else:
        yield f"{name}: no table of heads in this run{' yet' if run.meta.get('finished') is False else ''}."
    if run.meta.get("finished") is False and run.sweep is None and run.n_rows:
        yield f"A sweep goes on; masks evaluated so far: {run.n_rows}. Its table comes at the end."


def _extent(heads: pd.DataFrame) -> str:
    layers = heads.reset_index().groupby("kind", sort=False)["layer"].nunique()
    parts = [f"{n} {kind} layer{'s' if n > 1 else ''}" for kind, n in layers.items()]
    parts = [part.replace("cross layer", "cross-attention layer") for part in parts]
    return f"{len(heads)} attention head{'s' if len(heads) > 1 else ''} in {_listed(parts)}"


def _about_labels(heads: pd.DataFrame) -> Iterator[str]:
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
    yield from _about_certainty(heads, carried)
    undefined = [define(label).title for label in labels if heads[label].isna().all()]
    if undefined:
        yield f"Not defined on these texts: {_listed(undefined)}."


def _about_certainty(heads: pd.DataFrame, carried: Mapping[str, pd.Series]) -> Iterator[str]:
    """How many of the labels hold with their whole interval."""
    total = sure = 0
    for label, mask in carried.items():
        low, threshold = heads.get(f"{label}_low"), heads.get(f"{label}_threshold")
        if low is not None and threshold is not None:
            total += int((mask & low.notna()).sum())
            sure += int((mask & (low > threshold)).sum())
    if total:
        yield (f"{sure} of these {total} labels hold with their whole 95 % interval above the threshold (bootstrap "
               "over texts).")  # fmt: skip


def _names(names: pd.Series) -> str:
    return f" ({', '.join(names)})" if len(names) <= MOST_NAMES else ""


def _about_sweep(sweep: pd.DataFrame) -> Iterator[str]:
    settings = ["metric", "kinds", "ablation", "split"]
    for (metric, kinds, ablation, split), rows in sweep.groupby(settings, sort=False, dropna=False):
        baseline, n = rows["baseline"].iloc[0], rows["n_examples"].iloc[0]
        where = f" of {kinds} attention" if sweep["kinds"].nunique() > 1 else ""
        yield (f"With all heads, {define(str(metric)).title} is {number(baseline)} on the {n} examples of the "
               f"{split} split; removed heads{where} are replaced by {_replacement(str(ablation))}.")  # fmt: skip
        for strategy in dict.fromkeys(rows["strategy"]):
            if strategy != "random":
                yield _about_order(str(metric), str(strategy), rows)


def _replacement(ablation: str) -> str:
    return {"zero": "zero", "mean": "their mean output"}.get(ablation, ablation)


def _about_order(metric: str, strategy: str, rows: pd.DataFrame) -> str:
    """The first cut with a clear loss, and the same cut in random order."""
    title = define(metric).title
    own = rows[(rows["strategy"] == strategy) & (rows["n_removed"] > 0)].sort_values("n_removed")
    clear = own[own["ci_low"] > 0]
    if own.empty:
        return f"In the {strategy} order nothing was removed."
    if clear.empty:
        last = own.iloc[-1]
        return (f"In the {strategy} order no tested cut, up to {_cut(last)}, clearly worsens {title} "
                f"(every 95 % interval of the drop reaches 0); {_drop(last)} at the last one"
                f"{_compared(rows, last)}.")  # fmt: skip
    first = clear.iloc[0]
    return (f"In the {strategy} order the smallest tested cut that clearly worsens {title} is {_cut(first)}: "
            f"{_drop(first)}{_compared(rows, first)}.")  # fmt: skip


def _cut(row: pd.Series) -> str:
    return f"{row['n_removed']} of {row['n_heads']} heads ({100 * row['n_removed'] / row['n_heads']:.0f} %)"


def _drop(row: pd.Series) -> str:
    better = METRICS.get(str(row["metric"]))
    way = "rise" if better is not None and "lower is better" in better.text else "drop"
    return f"a {way} of {number(row['drop'])} [{number(row['ci_low'])}, {number(row['ci_high'])}]"


def _compared(rows: pd.DataFrame, like: pd.Series) -> str:
    random = rows[(rows["strategy"] == "random") & (rows["n_removed"] == like["n_removed"])]["drop"]
    random = random[np.isfinite(random)]
    if random.empty:
        return ""
    orders = f"{len(random)} random orders" if len(random) > 1 else "one random order"
    spread = f" ({number(random.min())} to {number(random.max())})" if len(random) > 1 else ""
    return f", against {number(random.mean())}{spread} in {orders}"


def number(value: object) -> str:
    """A number as people read it: three significant digits, whole numbers as they are, a dash for none."""
    if value is None or pd.isna(value):  # type: ignore[call-overload]
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        size = abs(float(value))
        if size >= 1e6 or 0 < size < 5e-4:
            return f"{value:.2e}" if np.isfinite(size) else str(float(value))
        return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.3f}"
    return str(value)


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
