"""What the experiments on heads of translation models share: data, single heads, curves, a layer's best head."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import headlab
from headlab.attention.masks import HeadId, HeadMask
from headlab.pruning.orderings import Ordering, order
from headlab.pruning.sweep import sweep
from headlab.tables import head_names, load_table, save_table, table_path, write_atomically, write_meta

DROPS = (0.25, 1.0)  # BLEU


def arguments(about: str, model: str, out: str) -> argparse.ArgumentParser:
    """The options that both experiments take."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=model)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--limit", type=int, default=500, help="lines; half choose, half judge")
    parser.add_argument("--seeds", type=int, default=5, help="random orders")
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs") / Path(out).name, help="where finished masks are kept"
    )
    parser.add_argument("--out", type=Path, default=Path(out))
    return parser


def open_task(given: argparse.Namespace, default: tuple[str, str] | None = None, **more: Any) -> Any:
    """The task translation on the files given, on those of HEADLAB_DATA, or on the sentences of the package."""
    files: dict[str, Any] = {"source": given.source, "reference": given.reference}
    if given.source is None and default and (root := os.environ.get("HEADLAB_DATA")):
        files = {name: Path(root) / path for name, path in zip(files, default, strict=True)}
    return headlab.task("translation", model=given.model, limit=given.limit, lowercase=given.lowercase, **files, **more)


def kept(run: Path, name: str) -> Path:
    """A folder for the masks of one experiment; sweep names them by all that they depend on."""
    folder = run / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def say(done: int, total: int, what: str) -> None:
    """One line of progress."""
    print(f"{done} of {total} masks; {what}", flush=True)


def single_heads(heads: Any, task: Any, run: Path) -> pd.DataFrame:
    """Every head removed alone: the rows of a sweep, indexed by head."""
    everything = [HeadId(*head) for head in heads.index]
    names = head_names(everything)
    orders = [Ordering((head,), name=name) for head, name in zip(everything, names, strict=True)]
    found = all_removed(heads, task, orders, kept(run, "single"))
    places = pd.DataFrame(everything, index=names)
    return found.join(places, on="strategy").rename(columns={"strategy": "name"}).reset_index(drop=True)


def all_removed(heads: Any, task: Any, orders: Sequence[Ordering], run: Path) -> pd.DataFrame:
    """The rows of each ordering with all its heads removed; a random order of them would be the same mask."""
    rows = []
    for done, one in enumerate(orders):
        say(done, len(orders), one.name)
        found = sweep(heads, task, one, ["100%"], seeds=1, run=run)
        rows.append(found[(found["n_removed"] > 0) & (found["strategy"] == one.name)])
    return pd.concat(rows, ignore_index=True)


def scores_of(heads: Any, task: Any, names: Sequence[str], run: Path) -> pd.DataFrame:
    """Scores of all heads on the select half, kept in the run's folder."""
    folder = kept(run, f"scores-{task.signature()['model']['revision'][-8:]}-{task.n_examples}")
    table = load_table(folder, "heads") if table_path(folder, "heads") else pd.DataFrame(index=heads.index)
    for name in names:
        if f"score_{name}" not in table.columns:
            print(f"scoring by {name}", flush=True)
            table[f"score_{name}"] = headlab.score(name, heads, task)
            save_table(table, folder, "heads")
    return table


def curve(
    heads: Any, task: Any, scores: pd.DataFrame, budgets: Sequence[int | str], kinds: Sequence[str] | None, seeds: int,
    run: Path,
) -> pd.DataFrame:  # fmt: skip
    """What it costs to remove heads of these kinds in the order of every score, and in random orders."""
    orders = [order(scores[column], kinds=kinds) for column in scores.columns]
    return sweep(heads, task, orders, list(budgets), seeds=seeds, run=kept(run, "curve"), progress=say)


def affordable(table: pd.DataFrame, drops: Sequence[float] = DROPS) -> pd.DataFrame:
    """How many heads go before BLEU falls by more than each drop, for every order.

    `removed` is the last budget before the drop is first passed; `at_least` and `at_most` are those before the upper
    and the lower end of the drop's 95 % interval pass it. A budget beyond the first failure does not count.
    """
    rows = []
    bleu = table[table["metric"] == "bleu"]
    for (strategy, seed, kinds), one in bleu.groupby(["strategy", "seed", "kinds"], sort=False):
        one = one.sort_values("n_removed")
        for drop in drops:
            found = {}
            for name, column in (("removed", "drop"), ("at_least", "ci_high"), ("at_most", "ci_low")):
                fits = (one[column] <= drop) | (one["n_removed"] == 0)
                found[name] = int(one.loc[fits.cummin(), "n_removed"].max())
            rows.append({"strategy": strategy, "seed": seed, "kinds": kinds, "drop": drop,
                         "n_heads": one["n_heads"].iloc[0], **found})  # fmt: skip
    return pd.DataFrame(rows)


def best_heads(heads: Any, task: Any, run: Path) -> pd.DataFrame:
    """Each layer left with one head: the one with the lowest loss on the select half, judged on the other."""
    rows, orders = [], []
    path = kept(run, "best") / f"chosen-{task.n_examples}.csv"
    chosen = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["kind", "layer", "head", "loss"])
    for (kind, layer), size in heads.heads_per_layer.items():
        if not ((chosen["kind"] == kind) & (chosen["layer"] == layer)).any():
            losses = {}
            for head in range(size):
                others = [HeadId(kind, layer, other) for other in range(size) if other != head]
                with heads.masked(HeadMask.removing(others, like=heads)):
                    losses[head] = mean_loss(task)
            best = min(losses, key=losses.__getitem__)
            row = pd.DataFrame([{"kind": kind, "layer": layer, "head": best, "loss": losses[best]}])
            chosen = row if chosen.empty else pd.concat([chosen, row])
            write_atomically(path, chosen.to_csv(index=False))
        best = int(chosen.loc[(chosen["kind"] == kind) & (chosen["layer"] == layer), "head"].iloc[0])
        others = tuple(HeadId(kind, layer, other) for other in range(size) if other != best)
        orders.append(Ordering(others, name=f"{kind} {layer}"))
        rows.append({"name": f"{kind} {layer}", "kind": kind, "layer": layer, "kept": best, "size": size})
    found = all_removed(heads, task, orders, kept(run, "best")).rename(columns={"strategy": "name"})
    return found.merge(pd.DataFrame(rows), on="name")


def mean_loss(task: Any) -> float:
    """The task's mean loss over the select half, nothing decoded."""
    import torch

    with torch.no_grad():
        return float(torch.cat([task.losses(task.network, batch) for batch in task.batches("select")]).mean())


def write(out: Path, tables: dict[str, pd.DataFrame], task: Any, command: str) -> None:
    """The tables as CSV, and meta.json with the task's signature."""
    for name, table in tables.items():
        write_atomically(out / f"{name}.csv", table.to_csv(index=False))
    write_meta(out, task.signature(), command=command)
