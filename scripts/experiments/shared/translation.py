"""What the experiments on heads of translation models share: lines, single heads, curves, gates, best heads."""

from __future__ import annotations

import argparse
import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

import headlab
from headlab.base.masks import HeadId, HeadMask, head_names
from headlab.models.demo.parallel import demo_pairs
from headlab.pruning.ladder import Training, ladder
from headlab.pruning.orderings import Ordering, order
from headlab.pruning.sweep import sweep
from headlab.runs.evaluations import evaluation_key
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta
from headlab.runs.tables import load_table, save_table, table_path
from scripts.experiments.shared.progress import say, told


@dataclass(frozen=True)
class Bench:
    """One model on three tasks: `choose` by loss on some lines, `judge` by BLEU and `cheap` by loss on the others."""

    choose: Any
    judge: Any
    cheap: Any
    heads: Any
    masks: Path  # finished masks, named by all that they depend on


def arguments(about: str, model: str, out: str) -> argparse.ArgumentParser:
    """The options that both experiments take."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=model)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--limit", type=int, default=500, help="the first lines, on which is judged")
    parser.add_argument("--choose", type=int, default=320, help="lines after those; four of five choose")
    parser.add_argument("--seeds", type=int, default=5, help="random orders")
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--runs", type=Path, default=Path("runs") / Path(out).name, help="where finished masks are kept"
    )
    parser.add_argument("--out", type=Path, default=Path(out))
    return parser


def open_bench(given: argparse.Namespace, default: tuple[str, str]) -> Bench:
    """The tasks on the files given, on those of HEADLAB_DATA, or on the sentences of the package."""
    judged = cut(given, default, 0, given.limit)
    chosen = cut(given, default, given.limit, given.limit + given.choose)
    common: dict[str, Any] = {"batch_size": given.batch_size}
    judge = headlab.task("translation", model=given.model, **judged, **common, lowercase=given.lowercase)
    cheap = headlab.task("translation", model=judge.model, metric="nll", **judged, **common)
    common["batch_size"] = min(8, given.batch_size)  # of gates: more steps for the same time
    choose = headlab.task("translation", model=judge.model, metric="nll", split="80:20", **chosen, **common)
    return Bench(choose, judge, cheap, headlab.Heads(judge.model), kept(given.runs, "masks"))


def on_own_translations(bench: Bench, given: argparse.Namespace) -> Bench:
    """The same bench, choosing by the loss on what the whole model itself makes of the lines that choose.

    A student that was trained on its teacher's translations is far too sure of itself on other people's: there a head
    whose removal makes it less sure lowers the loss, whatever it does to the translations.
    """
    facts = bench.choose.signature()
    name = f"own-{facts['model']['revision'][-8:]}-{facts['data_sha256'][-8:]}"
    sides = {side: kept(given.runs, "lines") / f"{name}.{side}" for side in ("source", "reference")}
    if not sides["reference"].is_file():
        print("translating the lines that choose", flush=True)
        made = bench.choose.translations()
        for side, column in (("source", "source"), ("reference", "translation")):
            write_atomically(sides[side], "".join(f"{line}\n" for line in made[column]))
    task = headlab.task(
        "translation",
        model=bench.judge.model,
        metric="nll",
        split="80:20",
        **sides,
        batch_size=min(8, given.batch_size),
    )
    return replace(bench, choose=task)


def cut(given: argparse.Namespace, default: tuple[str, str], first: int, last: int) -> dict[str, Path]:
    """Lines `first` to `last` of source and reference, as two files in the run's folder."""
    paths = [given.source, given.reference]
    if given.source is None and (root := os.environ.get("HEADLAB_DATA")):
        paths = [Path(root) / name for name in default]
    if paths[0] is None:
        texts = [list(side) for side in zip(*demo_pairs(), strict=True)]
        names = ["package.source", "package.reference"]
    else:
        texts = [lines(path) for path in paths]
        names = [path.name.removesuffix(".gz") for path in paths]
    folder, made = kept(given.runs, "lines"), {}
    for side, name, text in zip(("source", "reference"), names, texts, strict=True):
        if not text[first:last]:
            raise SystemExit(f"{name} has {len(text)} lines, and line {first + 1} is asked for: lower --limit.")
        path = folder / f"{first + 1}-{min(last, len(text))}.{name}"
        made[side] = write_atomically(path, "".join(f"{line}\n" for line in text[first:last]))
    return made


def lines(path: Path) -> list[str]:
    """The lines of a text file, .gz too, blank ones included."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return raw.decode("utf-8").removesuffix("\n").split("\n")


def kept(run: Path, name: str) -> Path:
    """A folder of the run."""
    folder = run / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def single_heads(bench: Bench, which: Sequence[HeadId], task: Any) -> pd.DataFrame:
    """Each of these heads removed alone: the rows of a sweep, with the head's name and place."""
    names = head_names(which)
    orders = [Ordering((head,), name=name) for head, name in zip(which, names, strict=True)]
    found = all_removed(bench, orders, task)
    places = pd.DataFrame(which, index=names)
    return found.join(places, on="strategy").rename(columns={"strategy": "name"}).reset_index(drop=True)


def whole_key(bench: Bench, task: Any) -> str:
    """The key of the full model's evaluation on all lines of a task."""
    return evaluation_key(HeadMask.full(bench.heads), "zero", "all", task.signature())


def all_removed(bench: Bench, orders: Sequence[Ordering], task: Any) -> pd.DataFrame:
    """The rows of each ordering with all its heads removed; a random order of them would be the same mask."""
    rows = []
    for done, one in enumerate(orders):
        say(f"{done} of {len(orders)}: {one.name}, {task.options.metric}")
        found = sweep(bench.heads, task, one, ["100%"], seeds=1, split="all", run=bench.masks)
        rows.append(found[(found["n_removed"] > 0) & (found["strategy"] == one.name)])
    return pd.concat(rows, ignore_index=True)


def scores_of(bench: Bench, names: Sequence[str], run: Path) -> pd.DataFrame:
    """Scores of all heads on the lines that choose, kept in the run's folder."""
    facts = bench.choose.signature()
    folder = kept(run, f"scores-{facts['model']['revision'][-8:]}-{facts['data_sha256'][-8:]}")
    table = load_table(folder, "heads") if table_path(folder, "heads") else pd.DataFrame(index=bench.heads.index)
    for name in names:
        if f"score_{name}" not in table.columns:
            print(f"scoring by {name}", flush=True)
            table[f"score_{name}"] = headlab.score(name, bench.heads, bench.choose)
            table.attrs = {}
            save_table(table, folder, "heads")
    return table


def curve(
    bench: Bench, scores: pd.DataFrame, budgets: Sequence[int | str], kinds: Sequence[str] | None, seeds: int
) -> pd.DataFrame:
    """What it costs to remove heads of these kinds in the order of every score, and in random orders."""
    orders = [order(scores[column], kinds=kinds) for column in scores.columns]
    progress = told("masks")
    return sweep(
        bench.heads, bench.judge, orders, list(budgets), seeds=seeds, split="all", run=bench.masks, progress=progress
    )


def learned_gates(
    bench: Bench,
    penalties: Sequence[float],
    kinds: Sequence[str],
    steps: int,
    seeds: int,
    run: Path,
    name: str = "hard_concrete",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Gates trained at every penalty with the weights frozen: the hard masks judged by BLEU, and all gates."""
    how = Training(steps=steps, per_example=True)
    found = ladder(
        bench.heads,
        bench.choose,
        "hard_concrete",
        penalties,
        seeds=seeds,
        kinds=kinds,
        training=how,
        run=kept(run, "gates"),
        progress=told(name, 30),
    )
    rows = []
    for (level, seed), part in found.gates.groupby(["level", "seed"], sort=False):
        gone = tuple(HeadId(*place) for place in part.loc[~part["kept"], ["kind", "layer", "head"]].to_numpy())
        if not gone:
            continue  # every gate stayed open: nothing to judge
        one = all_removed(bench, [Ordering(gone, name=name)], bench.judge)
        free = int(part["weight"].notna().sum())
        rows.append(one.assign(seed=seed, budget=f"penalty={level:g}", n_heads=free, penalty=level))
    if not rows:
        raise SystemExit(f"No gate closed at penalties up to {max(penalties):g}: take higher ones, or more steps.")
    return pd.concat(rows, ignore_index=True), found.gates


def best_heads(bench: Bench, run: Path) -> pd.DataFrame:
    """Each layer left with one head: the one with the lowest loss where is chosen, judged on the other lines."""
    rows, orders = [], []
    heads = bench.heads
    path = kept(run, "best") / f"chosen-{bench.choose.signature()['data_sha256'][-8:]}.csv"
    chosen = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["kind", "layer", "head", "loss"])
    for (kind, layer), size in heads.heads_per_layer.items():
        if not ((chosen["kind"] == kind) & (chosen["layer"] == layer)).any():
            losses = {}
            for head in range(size):
                others = [HeadId(kind, layer, other) for other in range(size) if other != head]
                with heads.masked(HeadMask.removing(others, like=heads)):
                    losses[head] = mean_loss(bench.choose)
            best = min(losses, key=losses.__getitem__)
            row = pd.DataFrame([{"kind": kind, "layer": layer, "head": best, "loss": losses[best]}])
            chosen = row if chosen.empty else pd.concat([chosen, row])
            write_atomically(path, chosen.to_csv(index=False))
        best = int(chosen.loc[(chosen["kind"] == kind) & (chosen["layer"] == layer), "head"].iloc[0])
        others = tuple(HeadId(kind, layer, other) for other in range(size) if other != best)
        orders.append(Ordering(others, name=f"{kind} {layer}"))
        rows.append({"name": f"{kind} {layer}", "kind": kind, "layer": layer, "kept": best, "size": size})
    found = all_removed(bench, orders, bench.judge).rename(columns={"strategy": "name"})
    return found.merge(pd.DataFrame(rows), on="name")


def mean_loss(task: Any) -> float:
    """The task's mean loss over the select split, nothing decoded."""
    import torch

    with torch.no_grad():
        return float(torch.cat([task.losses(task.network, batch) for batch in task.batches("select")]).mean())


def write(out: Path, tables: dict[str, pd.DataFrame], bench: Bench, command: str) -> None:
    """The tables as CSV, and meta.json with the signatures of what judged and of what chose."""
    for name, table in tables.items():
        write_atomically(out / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))
    write_meta(out, {**bench.judge.signature(), "chosen_on": bench.choose.signature()}, command=command)
