"""Every figure of headlab.report.figures from real runs of the demo models: writes results/gallery/."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

from headlab import load_table
from headlab.commands import dump, inspect, sweep
from headlab.commands.dump import DumpRequest
from headlab.commands.sweep import SweepRequest
from headlab.report import figures
from headlab.runs.maps import load_maps
from headlab.runs.meta import read_meta
from scripts.experiments.shared.folders import ROOT
from scripts.experiments.shared.progress import told

RUNS: dict[str, DumpRequest | SweepRequest] = {
    "minilm": DumpRequest(model="demo:minilm", maps=2, max_length=64, limit=24),
    "minilm-probe": SweepRequest(
        model="demo:minilm",
        task="probe",
        scores="gradient,ablation",
        limit=240,
        split="80:160",
        budgets="0,10%,20%,30%,50%,70%,90%",
    ),
    "smollm2": DumpRequest(model="demo:smollm2", maps=1, max_length=64, limit=8),
    "smollm2-lm": SweepRequest(
        model="demo:smollm2",
        task="lm",
        scores="gradient",
        max_length=128,
        limit=12,
        budgets="0,10%,20%,30%,50%",
    ),
}
MODELS = ("demo:minilm", "demo:distilbert-tagger", "demo:smollm2")


def main() -> None:
    """Run what is not there yet, then draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "gallery", help="where the runs are kept")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "gallery")
    arguments = parser.parse_args()
    for name, request in RUNS.items():
        command = dump if isinstance(request, DumpRequest) else sweep
        command.run(request, arguments.runs / name, told(name, 5))
    drawn = {
        **of_heads(arguments.runs),
        **of_maps(arguments.runs),
        **of_sweeps(arguments.runs),
        "costs": costs(),
        **of_results(ROOT / "results"),
    }
    for name, (figure, _) in drawn.items():
        figures.save_figure(figure, arguments.out / name, ["png"])
    write_notes(arguments.out, arguments.runs, {name: text for name, (_, text) in drawn.items()})


def of_heads(runs: Path) -> dict:
    """Figures of the head tables."""
    minilm, smollm2 = load_table(runs / "minilm", "heads"), load_table(runs / "smollm2", "heads")
    probe = load_table(runs / "minilm-probe", "heads")
    return {
        "label-map": (figures.label_map(minilm), "minilm: labels of all heads"),
        "heat-map": (figures.heat_map(minilm, "entropy_norm"), "minilm: relative entropy"),
        "sink-map": (figures.sink_map(smollm2), "smollm2: attention to the first token, sinks outlined"),
        "entropy-by-layer": (figures.entropy_by_layer(smollm2), "smollm2: entropy (Clark et al., figure 4)"),
        "mass-by-layer": (
            figures.mass_by_layer(probe),
            "minilm-probe: masses and gradient (Clark et al., figures 2, 3)",
        ),
    }


def of_maps(runs: Path) -> dict:
    """Figures of the stored maps."""
    maps, heads = load_maps(runs / "minilm"), load_table(runs / "minilm", "heads")
    few = [m for m in maps if m.text == 0 and (m.layer, m.head) in {(0, 2), (2, 9), (3, 0), (5, 0)}]
    return {
        "attention-grid": (figures.attention_grid(few), "minilm: four heads on one text"),
        "model-view": (figures.model_view(maps), "minilm: all heads on one text"),
        "cluster-map": (
            figures.cluster_map(maps, heads),
            "minilm: heads by Jensen-Shannon divergence (Clark, figure 6)",
        ),
        "model-view-decoder": (
            figures.model_view(load_maps(runs / "smollm2"), log=True),
            "smollm2: all heads, log colour",
        ),
    }


def of_sweeps(runs: Path) -> dict:
    """Figures of the sweeps."""
    probe, lm = load_table(runs / "minilm-probe", "sweep"), load_table(runs / "smollm2-lm", "sweep")
    return {
        "pruning-curve": (figures.pruning_curve(probe, "accuracy"), "minilm-probe: accuracy as heads go"),
        "pruning-curve-log": (figures.pruning_curve(lm, "perplexity"), "smollm2-lm: perplexity as heads go"),
    }


def of_results(results: Path) -> dict:
    """Figures of tables that other scripts have left in results/: each has its own signature there."""
    sst2, gates = (pd.read_csv(results / "prune_sst2" / f"{name}.csv") for name in ("sweep", "gates"))
    training = pd.read_csv(results / "induction" / "heads_over_training.csv")
    own = training[(training["model"] == "2-layer") & (training["seed"] == 0)]
    by_step = {int(step): rows.set_index(["kind", "layer", "head"]) for step, rows in own.groupby("step")}
    found = {
        "pareto": (figures.pareto(sst2, "accuracy"), "prune_sst2: learned gates among scores, and what none beats"),
        "gates": (figures.gate_histogram(gates), "prune_sst2: how open the learned gates are"),
        "training": (
            figures.heads_over_training(by_step, "induction_score"),
            "induction: an induction head grows in a model of two layers",
        ),
    }
    if (kinds := results / "reproduce_michel_mt" / "kinds.csv").is_file():
        figure = figures.pruning_by_kind(pd.read_csv(kinds), "bleu")
        found["pruning-by-kind"] = (figure, "reproduce_michel_mt: each kind of attention alone (Michel et al.)")
    return found


def costs() -> tuple:
    """Bars of what the demo models cost."""
    found = {model: inspect.run(inspect.InspectRequest(model=model)) for model in MODELS}
    columns = ("parameters", "flops_per_token", "kv_cache_bytes_per_token")
    table = pd.DataFrame({column: {model: facts[column] for model, facts in found.items()} for column in columns})
    return figures.cost_bars(table), "the demo models: parameters, operations and cache per token"


def write_notes(out: Path, runs: Path, texts: dict[str, str]) -> None:
    """What each figure shows, the exact commands, and the signatures of the runs."""
    lines = ["# Gallery", "", "Made by `scripts/experiments/gallery/run.py` from real runs of the demo models:", ""]
    lines += [f"- `{name}`: `{request.command_line()}`" for name, request in RUNS.items()]
    lines += ["", "and from the tables of other scripts in `results/`, which the captions name.", ""]
    lines += [f"![{text}]({name}.png)\n\n*{text}*\n" for name, text in texts.items()]
    (out / "README.md").write_text("\n".join(lines), encoding="utf-8")
    signatures = {name: read_meta(runs / name)["signature"] for name in RUNS}
    (out / "meta.json").write_text(json.dumps(signatures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
