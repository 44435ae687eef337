"""Which heads of a sentiment classifier can go: curves of many scores, random orders, and learned gates.

MiniLM, fine-tuned by `finetune.py` beside this. Heads are chosen on the select part of the SST-2 dev texts and judged
on the rest of them. Every score, mask and rung is kept as soon as it is there, so that a killed run continues.

    python -m scripts.experiments.prune_sst2.finetune --out runs/minilm-sst2
    HEADLAB_DATA=.. python -m scripts.experiments.prune_sst2.run --model runs/minilm-sst2
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import headlab
from headlab.metrics import metric
from headlab.pruning.ladder import Ladder, Training, ladder
from headlab.pruning.orderings import Ordering
from headlab.pruning.significance import paired_bootstrap
from headlab.pruning.training import Finetuning, finetuned
from headlab.report import figures
from headlab.runs.files import write_atomically
from headlab.runs.folder import open_run
from headlab.runs.meta import write_meta
from headlab.runs.tables import save_table
from scripts.experiments.shared.folders import ROOT, public_data
from scripts.experiments.shared.markdown import markdown
from scripts.experiments.shared.progress import say, told

SCORES = "gradient,magnitude,fisher,confidence,output_norm,gradient_iterated,lrp,ablation"
SETTINGS: dict[str, dict[str, Any]] = {"shapley": {"permutations": 3}}
BUDGETS = "0,10%,30%,50%,70%,90%"
PENALTIES = (0.0025, 0.01, 0.04)
KEEPS = (43, 29, 14)
TUNED = ("50%", "70%", "90%")


def main() -> None:
    """Score, sweep, learn gates, fine-tune after cuts, draw."""
    options = arguments()
    task = headlab.task(
        "classification", model=options.model, data=options.data, split=options.split, batch_size=options.batch_size
    )
    heads = headlab.Heads(task.model)
    signature = {"script": "prune_sst2", **task.signature(), "gate_steps": options.steps}
    open_run(options.runs, signature, command="python -m scripts.experiments.prune_sst2.run")
    say(f"{len(task.split('select'))} texts to choose on, {len(task.split('report'))} to judge on")
    table = scored(heads, task, options)
    orders = [headlab.order(table[f"score_{name}"]) for name in options.scores.split(",")]
    curve = headlab.sweep(heads, task, orders, BUDGETS, seeds=5, run=options.runs, progress=told("masks"))
    save_table(curve, options.runs, "sweep")
    learned: list[Ladder] = []
    write(options, signature, table, curve, learned)  # again after every part, so that what is there can be seen
    how = Training(steps=options.steps, per_example=True)
    for method, levels in (("hard_concrete", PENALTIES), ("exact_k", KEEPS)):
        learned.append(
            ladder(
                heads,
                task,
                method,
                levels,
                seeds=options.seeds,
                training=how,
                run=options.runs,
                progress=told("gates", 5),
            )
        )
        write(options, signature, table, curve, learned)
    tuned = tune(heads, task, orders, curve, options)
    write(options, signature, table, curve, learned, tuned)


def arguments() -> argparse.Namespace:
    """Where the model, the data and the results are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder that scripts/experiments/prune_sst2/finetune.py wrote")
    parser.add_argument("--data", help="texts and labels; sst2/dev.tsv of HEADLAB_DATA without it")
    parser.add_argument("--scores", default=SCORES, help="A,B: each orders the heads")
    parser.add_argument("--split", default="372:500")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=100, help="of training gates")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of gates at every level")
    parser.add_argument("--tune-steps", type=int, default=24, help="of fine-tuning after a cut")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "prune_sst2", help="what a killed run continues")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "prune_sst2")
    options = parser.parse_args()
    if options.data is None:
        options.data = str(public_data("sst2/dev.tsv", otherwise="name --data FILE") / "sst2" / "dev.tsv")
    return options


def scored(heads: headlab.Heads, task: Any, options: argparse.Namespace) -> pd.DataFrame:
    """The head table with every score, each saved once it is there."""
    runs = options.runs
    if (runs / "heads.parquet").exists():
        table = headlab.load_table(runs, "heads")
    else:
        table = heads.observe(task.batches("select"))
    for name in options.scores.split(","):
        if f"score_{name}" not in table:
            begun = time.perf_counter()
            table[f"score_{name}"] = headlab.score(name, heads, task, **SETTINGS.get(name, {}))
            table.attrs = {}
            save_table(table, runs, "heads")
            say(f"scored by {name} in {time.perf_counter() - begun:.0f} s")
    return table


def tune(
    heads: headlab.Heads, task: Any, orders: list[Ordering], curve: pd.DataFrame, options: argparse.Namespace
) -> pd.DataFrame:
    """Accuracy and loss after cuts with and without light fine-tuning: no cut, gradient, and the first random order."""
    random = headlab.order(headlab.score("random", heads, task, seed=0), seed=0)
    gradient = next(order for order in orders if order.name == "gradient")
    how = Finetuning(options.tune_steps)
    base = headlab.HeadMask.full(heads)
    cuts = [("none", "0", base)]
    cuts += [(o.name, b, headlab.HeadMask.removing(o.cut(b), like=heads)) for o in (gradient, random) for b in TUNED]
    path = options.runs / f"tuned-{options.tune_steps}.parquet"
    done = pd.read_parquet(path) if path.exists() else pd.DataFrame({"strategy": [], "budget": [], "example": []})
    for strategy, budget, mask in cuts:
        if not ((done["strategy"] == strategy) & (done["budget"] == budget)).any():
            with finetuned(heads, task, mask, how):
                examples = task.evaluate("report").examples.reset_index()
            done = pd.concat([done, examples.assign(strategy=strategy, budget=budget)], ignore_index=True)
            write_atomically(path, lambda place, table=done: table.to_parquet(place, index=False))
            say(f"fine-tuned after {strategy} {budget}")
    return compared(task.evaluate("report").examples, done, cuts, curve, task)


def compared(baseline: pd.DataFrame, done: pd.DataFrame, cuts: list, curve: pd.DataFrame, task: Any) -> pd.DataFrame:
    """One row per cut and metric: the value with and without fine-tuning, and the drop from the untouched model."""
    runs = [done[(done["strategy"] == s) & (done["budget"] == b)].set_index("example") for s, b, _ in cuts]
    metrics = [metric(name) for name in task.metrics]
    table = paired_bootstrap(baseline, runs, metrics)
    rows = []
    for place, (strategy, budget, mask) in enumerate(cuts):
        for measured in metrics:
            plain = curve[
                (curve["strategy"] == ("gradient" if strategy == "none" else strategy))
                & (curve["budget"] == budget)
                & (curve["seed"] == 0)
                & (curve["metric"] == measured.name)
            ]
            rows.append(
                {
                    "strategy": strategy,
                    "budget": budget,
                    "n_removed": len(mask.removed),
                    "metric": measured.name,
                    "value_untuned": float(plain["value"].iloc[0]),
                    **table.loc[(place, measured.name)].to_dict(),
                }
            )
    return pd.DataFrame(rows)


def summary(curve: pd.DataFrame) -> pd.DataFrame:
    """Per strategy: mean drop of accuracy over the budgets from 10 % to 90 %, and the drop at half of the heads."""
    rows = curve[(curve["metric"] == "accuracy") & (curve["n_removed"] > 0)]
    by_order = rows.groupby(["strategy", "seed"])["drop"].mean()
    half = rows[rows["budget"] == "50%"].set_index(["strategy", "seed"])
    lines = []
    for strategy in dict.fromkeys(rows["strategy"]):
        area, at_half = by_order[strategy], half.loc[strategy]
        mean = {"mean_drop": area.mean(), "mean_drop_min": area.min(), "mean_drop_max": area.max()}
        low, high = at_half["ci_low"].min(), at_half["ci_high"].max()
        lines.append(
            {
                "strategy": strategy,
                "orders": len(area),
                **mean,
                "drop_at_half": at_half["drop"].mean(),
                "ci_low_at_half": low,
                "ci_high_at_half": high,
            }
        )
    return pd.DataFrame(lines).sort_values("mean_drop", ignore_index=True)


def agreement(gates: pd.DataFrame) -> pd.DataFrame:
    """Per level: open heads, how alike seeds rank the heads, and the share of gates that are all but decided."""
    lines = []
    for (method, level), part in gates.groupby(["method", "level"], sort=False):
        ranks = part.pivot_table(index=["kind", "layer", "head"], columns="seed", values="weight").corr("spearman")
        upper = ranks.to_numpy()[np.triu_indices(len(ranks), 1)]
        line = {
            "method": method,
            "level": level,
            "n_open": part.groupby("seed")["kept"].sum().tolist(),
            "rank_correlation": upper.mean() if len(upper) else np.nan,
        }
        if method == "hard_concrete":
            line["decided"] = ((part["p_open"] < 0.1) | (part["p_one"] > 0.5)).mean()
        lines.append(line)
    return pd.DataFrame(lines)


def wide(draw: Any, table: pd.DataFrame, name: str) -> Figure:
    """A figure of many lines, their names beside it."""
    figure = Figure(figsize=(figures.TWO_COLUMNS, 3.2), layout="constrained")
    axes = figure.subplots()
    draw(table, name, ax=axes)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def rungs(learned: list[Ladder]) -> pd.DataFrame:
    """Per level of the learned gates: open heads and drops, mean and range over seeds, soft against hard gates."""
    lines = []
    for part in learned:
        rows = part.curve[part.curve["metric"] == "accuracy"]
        for (strategy, budget), own in rows.groupby(["strategy", "budget"], sort=False):
            gap = (own["value_soft"] - own["value"]).abs().max()
            lines.append(
                {
                    "strategy": strategy,
                    "level": budget,
                    "heads_left": own["n_open"].tolist(),
                    "accuracy": own["value"].mean(),
                    "mean_drop": own["drop"].mean(),
                    "drop_min": own["drop"].min(),
                    "drop_max": own["drop"].max(),
                    "soft_minus_hard_max": gap,
                }
            )
    return pd.DataFrame(lines)


def notes(frames: dict[str, pd.DataFrame], learned: list[Ladder], options: argparse.Namespace) -> str:
    """The tables that people read, in Markdown."""
    first = frames["sweep"].iloc[0]
    text = [
        "# Pruning MiniLM fine-tuned on SST-2",
        "",
        f"Made by `scripts/experiments/prune_sst2/run.py`; split {options.split} (chosen on the first part, judged "
        f"on the second, {int(first['n_examples'])} texts); accuracy of the whole model {first['baseline']:.3f}. "
        "Drops are shares of correct answers, above 0 is worse. Heads are zeroed.",
        "",
        "Mean drop over the budgets, and at half of the heads with its 95 % interval (random: the widest):",
        "",
        markdown(frames["summary"]),
    ]
    if learned:
        text += [
            "",
            f"Learned gates, {options.steps} steps, frozen weights, hard gates (a list has one entry a seed):",
            "",
            markdown(rungs(learned)),
            "",
            "How alike the seeds rank the heads (Spearman), and the share of gates with P(0) > .9 or P(1) > .5:",
            "",
            markdown(frames["agreement"]),
        ]
    if "tuned" in frames:
        text += [
            "",
            f"After {options.tune_steps} steps of fine-tuning on the select texts, and without:",
            "",
            markdown(frames["tuned"]),
        ]
    pictures = ["curve-accuracy", "curve-loss", "pareto-accuracy", "pareto-loss", *(["gates"] if learned else [])]
    return "\n".join([*text, "", *(f"![{name}]({name}.png)" for name in pictures), ""])


def write(
    options: argparse.Namespace,
    signature: dict[str, Any],
    table: pd.DataFrame,
    curve: pd.DataFrame,
    learned: list[Ladder],
    tuned: pd.DataFrame | None = None,
) -> None:
    """Tables and figures of the results folder, of the parts that are there."""
    out = options.out
    everything = pd.concat([curve, *(part.curve for part in learned)], ignore_index=True)
    frames = {
        "heads": table.filter(like="score_").reset_index(),
        "sweep": everything.drop(columns="seconds"),
        "summary": summary(curve),
    }
    if learned:
        frames["gates"] = pd.concat([part.gates for part in learned], ignore_index=True)
        frames["agreement"] = agreement(frames["gates"])
        figures.save_figure(figures.gate_histogram(learned[0].gates), out / "gates", ["png"])
    if tuned is not None:
        frames["tuned"] = tuned
    for name, frame in frames.items():
        write_atomically(out / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g"))
    # Fifteen colours cannot be told apart: the gates stand against the control and the best of the scores.
    rivals = [s for s in frames["summary"]["strategy"] if s != "random"][:3]
    against = everything[everything["strategy"].isin([*rivals, "random", "hard_concrete", "exact_k"])]
    for name in ("accuracy", "loss"):
        figures.save_figure(wide(figures.pruning_curve, curve, name), out / f"curve-{name}", ["png"])
        figures.save_figure(wide(figures.pareto, against, name), out / f"pareto-{name}", ["png"])
    write_atomically(out / "README.md", notes(frames, learned, options))
    settings = {
        "budgets": BUDGETS,
        "penalties": PENALTIES,
        "keeps": KEEPS,
        "seeds": options.seeds,
        "tune_steps": options.tune_steps,
        "scores": options.scores,
        "settings": SETTINGS,
    }
    command = "python -m scripts.experiments.prune_sst2.run --model runs/minilm-sst2"
    write_meta(out, {**signature, **settings}, command=command, finished=tuned is not None)
    say(f"written to {out}")


if __name__ == "__main__":
    main()
