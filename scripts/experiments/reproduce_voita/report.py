"""Tables, figures and README of the experiment on the Firefox student, from the parts that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from headlab.base.masks import head_names
from headlab.pruning.significance import adjusted
from headlab.report import figures
from headlab.runs.files import write_atomically
from headlab.runs.tables import load_table
from scripts.experiments.shared.markdown import markdown
from scripts.experiments.shared.translation import Bench, whole_key
from scripts.experiments.shared.translation_tables import PLACE, affordable, interval, separation, survival, with_p

LABELS = Path("results/labels/firefox/heads.csv")
GATES = {"hard_concrete": "references", "hard_concrete_own": "the student's own translations"}
LEFT = 16  # encoder heads that are left where labels of an order's survivors are tested
PUBLISHED = (
    "Voita et al. (2019) pruned 48 encoder heads to 10 for 0.15 BLEU (WMT) and to 4 for 0.25 BLEU (OpenSubtitles), "
    "fine-tuning the encoder along with its gates. Here no weight is touched."
)


def report(bench: Bench, folder: Path, out: Path) -> dict[str, pd.DataFrame]:
    """What results/reproduce_voita holds besides meta.json; returns the tables to be written."""
    there = {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}
    if "heads" in there:
        there["heads"] = load_table(folder, "heads")  # with its index
    tables: dict[str, pd.DataFrame] = {}
    text = ["# Encoder heads of the Firefox student, English to Portuguese", "", _head(bench), "", PUBLISHED]
    if "curve" in there:
        parts = [there["curve"], *(there[f"{name}-curve"] for name in GATES if name in there)]
        tables["curve"] = pd.concat(parts, ignore_index=True).drop(columns="seconds")
        tables["affordable"] = affordable(tables["curve"])
        text += _curve(tables, out)
    if any(name in there for name in GATES):
        tables["gates"] = pd.concat([there[name].assign(strategy=name) for name in GATES if name in there])
        text += ["", "## Learned gates (hard concrete, weights frozen, hard gates)"]
    for name, part in tables["gates"].groupby("strategy") if "gates" in tables else ():
        figures.save_figure(figures.gate_histogram(part), out / str(name), ["png"])
        text += ["", *_gates(str(name), part, there[f"{name}-curve"])]
    labels = pd.read_csv(LABELS).set_index(PLACE) if LABELS.is_file() else None
    if labels is not None and "heads" in there:
        tables["survival"] = survivors(there, labels)
        text += ["", *_survival(tables["survival"])]
    if "single-nll" in there:
        tables["single"] = single(there, bench)
        tables["cross"], lines = alignment(tables["single"], labels, out)
        text += ["", *_single(tables["single"]), "", *lines]
    write_atomically(out / "README.md", "\n".join(text) + "\n")
    return tables


def _head(bench: Bench) -> str:
    n, chosen = bench.judge.n_examples, len(bench.choose.split("select"))
    return (
        f"Made by `scripts/experiments/reproduce_voita/run.py`. BLEU of the first {n} lines of NTREX (greedy); "
        "the heads are chosen by "
        f"the loss on {chosen} later lines, of their references and (names that end in _own) of what the whole student "
        "makes of them, and zeroed. Drops are above 0 where the mask is worse; intervals are 95 % "
        "of 1,000 paired bootstrap resamples."
    )


def _curve(tables: dict[str, pd.DataFrame], out: Path) -> list[str]:
    """BLEU by number of heads removed, and how many heads a drop affords."""
    bleu = tables["curve"][tables["curve"]["metric"] == "bleu"]
    lines = ["", f"Baseline: {bleu['baseline'].iloc[0]:.2f} BLEU.", "", "## What removing encoder heads costs (BLEU)"]
    orders = bleu[~bleu["strategy"].isin(["random", *GATES])]
    shown = orders.assign(text=interval(orders)).pivot(index="n_removed", columns="strategy", values="text")
    random = bleu[bleu["strategy"] == "random"].groupby("n_removed")["drop"]
    several = random.agg(["mean", "min", "max", "size"])
    shown["random: mean (range; orders)"] = [
        f"{row['mean']:.2f} ({row['min']:.2f} to {row['max']:.2f}; {row['size']:.0f})" if n else "0.00"
        for n, row in several.reindex(shown.index).iterrows()
    ]
    lines += ["", markdown(shown.fillna("").reset_index())]
    counts = tables["affordable"]
    rows = []
    for (strategy, drop), part in counts.groupby(["strategy", "drop"], sort=False):
        rows.append(
            {
                "order": strategy,
                "BLEU": drop,
                "heads that go": _range(part["removed"]),
                "at least": _range(part["at_least"]),
                "at most": _range(part["at_most"]),
            }
        )
    lines += [
        "",
        "How many of 48 go before BLEU falls by more, on the budgets tried (of several random orders, or "
        "seeds, the range); at least and at most: by the upper and the lower end of the drop's interval.",
        "",
        markdown(pd.DataFrame(rows)),
        "",
        "![curve](curve-bleu.png)",
    ]
    figure = Figure(figsize=(figures.TWO_COLUMNS, 3.2), layout="constrained")
    axes = figure.subplots()
    figures.pruning_curve(tables["curve"], "bleu", ax=axes)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figures.save_figure(figure, out / "curve-bleu", ["png"])
    return lines


def _gates(name: str, gates: pd.DataFrame, curve: pd.DataFrame) -> list[str]:
    """The Pareto table of learned gates, and how decided they are (row C5: P(0) > .9 or P(1) > .5)."""
    free = gates[gates["weight"].notna()]
    decided = (free["p_open"] < 0.1) | (free["p_one"] > 0.5)
    share = decided.groupby([free["level"], free["seed"]]).mean()
    bleu = curve[curve["metric"] == "bleu"]
    rows = [
        {
            "penalty": row.penalty,
            "seed": row.seed,
            "heads left": row.n_heads - row.n_removed,
            "BLEU": row.value,
            "drop": text,
            "decided": share[row.penalty, row.seed],
        }
        for row, text in zip(bleu.itertuples(), interval(bleu), strict=True)
    ]
    return [f"Trained on the loss of {GATES[name]}:", "", markdown(pd.DataFrame(rows)), "", f"![gates]({name}.png)"]


def survivors(there: dict[str, pd.DataFrame], labels: pd.DataFrame) -> pd.DataFrame:
    """Labels, and what they measure, of heads that stay against heads that go: for every order, and learned gates."""
    kept: dict[str, pd.Series] = {}
    scores = there["heads"].loc[["encoder"]]
    for column in scores.filter(like="score_"):
        kept[f"{column.removeprefix('score_')}, {LEFT} left"] = scores[column].rank(method="first") > 48 - LEFT
    for name in (name for name in GATES if name in there):
        gates = there[name][there[name]["weight"].notna()].set_index(PLACE)
        for (level, seed), part in gates.groupby(["level", "seed"], sort=False):
            if 4 <= part["kept"].sum() <= 44:
                kept[f"{name} {level:g} seed {seed}, {part['kept'].sum()} left"] = part["kept"].astype(bool)
    encoder = labels.loc[["encoder"]].dropna(axis=1, how="all")
    truths = encoder.select_dtypes(bool)
    numbers = encoder[[f"{name}_score" for name in truths if f"{name}_score" in encoder]].assign(
        entropy=encoder["entropy"]
    )
    parts = []
    for name, survives in kept.items():
        both = [survival(truths, survives), separation(numbers, survives)]
        parts.append(pd.concat(both).assign(order=name).pipe(lambda t: t.assign(q=adjusted(t["p"].to_numpy()))))
    return pd.concat(parts, ignore_index=True)


def _survival(table: pd.DataFrame) -> list[str]:
    """For every label, in how many choices of survivors it goes with staying; all tests are in survival.csv."""
    n = table["order"].nunique()
    lines = [
        "## Labels of the heads that stay against those that go",
        "",
        f"{len(table)} tests over {n} choices of survivors (orders cut to {LEFT} heads; gates by penalty and "
        "seed), q adjusted within each choice (Benjamini-Hochberg); all are in survival.csv. Choices overlap, so "
        "that their number is no further test.",
    ]
    about = {
        "Fisher": "Labels themselves (Fisher's exact test; effect: odds ratio of staying):",
        "Mann-Whitney": "What the labels measure (Mann-Whitney; effect: chance that a head that stays has the "
        "higher value, .5 where it tells nothing):",
    }
    for test, text in about.items():
        rows = []
        for label, part in table[table["test"] == test].groupby("label"):
            found = part[part["q"] < 0.05]
            rows.append(
                {
                    "label": label,
                    "choices with q < .05": f"{len(found)} of {len(part)}",
                    "median effect": part["effect"].median(),
                    "lowest": part["effect"].min(),
                    "highest": part["effect"].max(),
                }
            )
        lines += ["", text, "", markdown(pd.DataFrame(rows))]
    return lines


def single(there: dict[str, pd.DataFrame], bench: Bench) -> pd.DataFrame:
    """A row for each head: the loss without it, and BLEU where that was decoded, with p and q."""
    found = None
    for name, task, measured in (("single-nll", bench.cheap, "nll"), ("single", bench.judge, "bleu")):
        if name not in there:
            continue
        rows = there[name][there[name]["metric"] == measured]
        rows = with_p(rows, bench.masks, whole_key(bench, task)).set_index(PLACE)
        rows = rows[["drop", "ci_low", "ci_high", "p", "q"]].add_prefix(f"{measured}_")
        found = rows if found is None else found.join(rows)
    assert found is not None
    found.insert(0, "name", head_names(found.index, single_stack=False))
    return found.reset_index()


def _single(table: pd.DataFrame) -> list[str]:
    """How many heads matter alone (row D1), and those that matter most."""
    matter = table["nll_q"] < 0.05
    worse, better = int((matter & (table["nll_drop"] > 0)).sum()), int((matter & (table["nll_drop"] < 0)).sum())
    lines = [
        "## Every head alone",
        "",
        f"Loss on the lines that judge, q < .05: {worse} of {len(table)} heads are missed, {better} are better gone.",
    ]
    if "bleu_drop" in table:
        judged = table[table["bleu_drop"].notna()]
        worst = judged.nlargest(10, "bleu_drop")
        shown = worst.assign(bleu=interval(worst, "bleu_"), nll=interval(worst, "nll_", 4))
        lines += [
            f"BLEU ({len(judged)} heads decoded): {int((judged['bleu_q'] < 0.05).sum())} with q < .05. Largest drops:",
            "",
            markdown(shown[["name", "bleu", "bleu_q", "nll"]]),
        ]
    return lines


def alignment(table: pd.DataFrame, labels: pd.DataFrame | None, out: Path) -> tuple[pd.DataFrame, list[str]]:
    """The head that aligns best among the cross-attention heads, and what it costs to lose it."""
    cross = table[table["kind"] == "cross"].set_index(PLACE)
    column = "bleu" if "bleu_drop" in cross and cross["bleu_drop"].notna().all() else "nll"
    if labels is None:
        return cross.reset_index(), []
    cross["alignment_score"] = labels["alignment_score"]
    best, drops = cross["alignment_score"].idxmax(), cross[f"{column}_drop"]
    place = int((drops > drops[best]).sum()) + 1
    found: Any = stats.spearmanr(cross["alignment_score"], drops)
    own = cross.loc[[best]]
    others = drops.drop(best)
    change = {"bleu": "BLEU falls", "nll": "the loss rises"}[column]
    text = (
        f"By its attention {own['name'].iloc[0]} aligns best ({own['alignment_score'].iloc[0]:.2f} of the silver "
        f"links). Without it {change} by {interval(own, f'{column}_', 3).iloc[0]}: number {place} of "
        f"{len(cross)} cross-attention heads (median of the others {others.median():.3f}, largest "
        f"{others.max():.3f}). Over the heads, alignment and drop have a rank correlation of {found.statistic:.2f} "
        f"(p = {found.pvalue:.2g})."
    )
    _draw(cross, column, out)
    return cross.reset_index(), ["## The alignment head", "", text, "", "![cross](cross.png)"]


def _draw(cross: pd.DataFrame, column: str, out: Path) -> None:
    figure = Figure(figsize=(figures.ONE_COLUMN, 2.6), layout="constrained")
    axes = figure.subplots()
    drop = cross[f"{column}_drop"]
    bars = np.abs(np.stack([drop - cross[f"{column}_ci_low"], cross[f"{column}_ci_high"] - drop]))
    axes.errorbar(cross["alignment_score"], drop, bars, fmt="o", markersize=3, linewidth=0.8)
    axes.axhline(0, color="black", linewidth=0.6)
    named = cross.loc[[*drop.nlargest(3).index, cross["alignment_score"].idxmax()]].drop_duplicates("name")
    for name, x, y in zip(named["name"], named["alignment_score"], named[f"{column}_drop"], strict=True):
        axes.annotate(name, (x, y), xytext=(3, 3), textcoords="offset points", fontsize=6)
    axes.set_xlabel("links that the head looks at (share)")
    axes.set_ylabel("drop of BLEU without it" if column == "bleu" else "rise of the loss without it (nats)")
    figures.save_figure(figure, out / "cross", ["png"])


def _range(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"
