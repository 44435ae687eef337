"""Tables, figures and README of the experiment on encoder, decoder and cross-attention, from the parts there are."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from headlab.report import figures
from headlab.runs.files import write_atomically
from scripts.experiments.shared.markdown import markdown
from scripts.experiments.shared.translation import Bench, whole_key
from scripts.experiments.shared.translation_tables import fragility, interval, with_p

PUBLISHED = (
    "Michel et al. (2019): cross-attention collapses once more than 60 % of its heads are gone, while encoder and "
    "decoder self-attention keep about 30 of 36 BLEU with 20 % of theirs (WMT En-Fr); the single best head of the "
    "last cross-attention layer costs 13.6 to 18.9 BLEU; 8 of 96 encoder heads matter alone."
)


def report(bench: Bench, folder: Path, out: Path) -> dict[str, pd.DataFrame]:
    """What results/reproduce_michel_mt holds besides meta.json; returns the tables to be written."""
    there = {path.stem: pd.read_parquet(path) for path in folder.glob("*.parquet")}
    tables: dict[str, pd.DataFrame] = {}
    n, chosen = bench.judge.n_examples, len(bench.choose.split("select"))
    text = [
        "# Heads of a Marian trained on Multi30k: encoder, decoder and cross-attention",
        "",
        "Made by `scripts/experiments/reproduce_michel_mt/run.py` on the model of "
        "`scripts/experiments/reproduce_michel_mt/train.py`. BLEU (lower-cased, "
        f"greedy) of the first {n} lines of test_2016_flickr; heads are chosen by the loss on {chosen} later "
        "lines, and zeroed. Drops are above 0 where the mask is worse; intervals are 95 % of 1,000 paired "
        "bootstrap resamples.",
        "",
        PUBLISHED,
    ]
    if "kinds" in there:
        tables["kinds"] = there["kinds"].drop(columns="seconds")
        tables["fragility"] = fragility(there["kinds"], bench.masks)
        figures.save_figure(figures.pruning_by_kind(there["kinds"], "bleu"), out / "kinds-bleu", ["png"])
        text += ["", *_kinds(tables)]
    for name, columns in (("best", ["name", "kept", "size"]), ("single", ["name"])):
        if name in there:
            rows = there[name][there[name]["metric"] == "bleu"]
            tables[name] = with_p(rows, bench.masks, whole_key(bench, bench.judge)).drop(columns="seconds")
            text += ["", *_table(name, tables[name], columns)]
    write_atomically(out / "README.md", "\n".join(text) + "\n")
    return tables


def _kinds(tables: dict[str, pd.DataFrame]) -> list[str]:
    """Drops of each kind by per cent, and whether cross-attention is the most fragile."""
    bleu = tables["kinds"][tables["kinds"]["metric"] == "bleu"]
    lines = [f"Baseline: {bleu['baseline'].iloc[0]:.2f} BLEU.", "", "## Each kind pruned by itself, and all together"]
    counts = bleu.groupby("kinds", sort=False)["n_heads"].first()
    lines += ["", "Heads: " + ", ".join(f"{kinds} {n}" for kinds, n in counts.items()) + ". Drop of BLEU by share:"]
    for strategy, part in bleu[bleu["strategy"] != "random"].groupby("strategy", sort=False):
        wide = part.assign(text=interval(part)).pivot(index="budget", columns="kinds", values="text")
        lines += ["", f"Order: {strategy}", "", markdown(_sorted(wide, part))]
    random = bleu[bleu["strategy"] == "random"]
    spread = random.groupby(["budget", "kinds"])["drop"].agg(["mean", "min", "max"])
    spread["text"] = [f"{m:.2f} ({low:.2f} to {high:.2f})" for m, low, high in spread.to_numpy()]
    wide = spread["text"].unstack("kinds")
    lines += ["", f"Random orders ({random['seed'].nunique()}): mean and range", "", markdown(_sorted(wide, random))]
    return [*lines, "", *_verdict(tables["fragility"]), "", "![kinds](kinds-bleu.png)"]


def _sorted(wide: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Budgets from few heads to many, kinds as the model has them."""
    budgets = rows.sort_values("n_removed")["budget"].drop_duplicates()
    return wide.loc[budgets, list(dict.fromkeys(rows["kinds"]))].reset_index()


def _verdict(table: pd.DataFrame) -> list[str]:
    """In how many comparisons cross-attention loses more, or less, with an interval that leaves out 0."""
    rows = []
    for (strategy, budget, other), part in table.groupby(["strategy", "budget", "other"], sort=False):
        one = interval(part).iloc[0] if len(part) == 1 else f"mean {part['drop'].mean():.2f}"
        rows.append(
            {
                "order": strategy,
                "share": budget,
                "against": other,
                "difference": one,
                "cross more fragile": f"{int((part['ci_low'] > 0).sum())} of {len(part)}",
                "less": f"{int((part['ci_high'] < 0).sum())} of {len(part)}",
            }
        )
    more, less = int((table["ci_low"] > 0).sum()), int((table["ci_high"] < 0).sum())
    return [
        "## Is cross-attention the most fragile?",
        "",
        f"Drop with cross-attention heads gone minus drop with the same share of another kind gone: above 0, the "
        f"interval too, in {more} of {len(table)} comparisons; below 0, the interval too, in {less}.",
        "",
        markdown(pd.DataFrame(rows)),
    ]


def _table(name: str, table: pd.DataFrame, columns: list[str]) -> list[str]:
    matter = table["q"] < 0.05
    worse, better = int((matter & (table["drop"] > 0)).sum()), int((matter & (table["drop"] < 0)).sum())
    shown = table if name == "best" else table.nlargest(10, "drop")
    shown = shown.assign(BLEU=interval(shown))[[*columns, "BLEU", "p", "q"]]
    title = {"best": "Each layer left with one head, chosen on other lines", "single": "Every head alone"}[name]
    by_kind = ", ".join(
        f"{kind} {int(((part['q'] < 0.05) & (part['drop'] > 0)).sum())} of {len(part)}"
        for kind, part in table.groupby("kind", sort=False)
    )
    return [
        f"## {title}",
        "",
        f"q < .05 (Benjamini-Hochberg): {worse} of {len(table)} lose BLEU ({by_kind}), {better} "
        f"gain." + ("" if name == "best" else " The ten largest drops:"),
        "",
        markdown(shown),
    ]
