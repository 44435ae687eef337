"""Which heads of SmolLM2 can go: minimal pairs of five BLiMP paradigms and WikiText perplexity under the same masks.

Heads are scored on 40 pairs of each paradigm, and masks judged on 160 others of each and on 10,000 tokens of WikiText,
which no score has seen. Needs the folder of public data in HEADLAB_DATA (blimp/*.jsonl, wikitext/wiki2.valid.txt).
A stopped run goes on where it stopped; the tables and figures go to --results once everything is measured.

    HEADLAB_DATA=FOLDER python -m scripts.experiments.prune_smollm2.run --out RUN [--results FOLDER] [--limit N]
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import headlab
from headlab.runs.folder import open_run
from headlab.runs.journal import Journal
from headlab.runs.meta import write_meta
from scripts.experiments.shared.folders import public_data
from scripts.experiments.shared.progress import told

PARADIGMS = (
    "anaphor_number_agreement",
    "determiner_noun_agreement_1",
    "irregular_past_participle_verbs",
    "npi_present_1",
    "wh_island",
)
SCORES = ("gradient", "ablation", "label:induction")
BUDGETS = "0,10%,20%,30%,40%,50%"
CHOSEN, JUDGED = 40, 160  # pairs of each paradigm
WINDOW, TOKENS = 128, 10_000
TABLES = ("heads.csv", "sweep.csv", "meta.json")


def tasks(model: str, data: Path, limit: int | None) -> dict[str, Any]:
    """The two tasks over one opened model; `limit` is pairs of each paradigm, both halves together."""
    chosen, judged = (CHOSEN, JUDGED) if limit is None else (limit // 5, limit - limit // 5)
    files = [data / "blimp" / f"{name}.jsonl" for name in PARADIGMS]
    count = len(PARADIGMS)
    pairs = headlab.task(
        "minimal-pairs",
        model=model,
        data=files,
        limit=(chosen + judged) * count,
        split=f"{chosen * count}:{judged * count}",
    )
    windows = -(-TOKENS // (WINDOW - 1)) if limit is None else 2
    text = headlab.task(
        "lm", model=pairs.model, data=data / "wikitext" / "wiki2.valid.txt", max_length=WINDOW, limit=windows
    )
    return {"pairs": pairs, "wikitext": text}


def scored(heads: Any, task: Any, run: Path) -> Any:
    """The head table with the scores, made on the select split of the pairs."""
    signature = task.signature()
    table = heads.observe(list(task.batches("select")), ["previous_token", "induction", "sink", "broad"])
    for name in SCORES:
        more = {"journal": Journal(run, name, signature)} if name == "ablation" else {}
        table[f"score_{name}"] = headlab.score(name, heads, task, table=table, progress=told(name, 30), **more)
    return table


def main() -> None:
    """Score, sweep both tasks, and copy what is worth keeping to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo:smollm2")
    parser.add_argument("--out", required=True)
    parser.add_argument("--results", default="results/prune_smollm2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=None, help="pairs of each paradigm, for a trial")
    options = parser.parse_args()
    found = tasks(options.model, public_data("blimp", "wikitext"), options.limit)
    heads = headlab.Heads(found["pairs"].model)
    command = "python -m scripts.experiments.prune_smollm2.run --out RUN" + (
        f" --limit {options.limit}" if options.limit else ""
    )
    table, orderings = None, []
    for name, task in found.items():
        run = Path(options.out) / name
        split = "report" if name == "pairs" else "all"
        signature = {
            "command": "sweep",
            **task.signature(),
            "ablation": "zero",
            "within": "model",
            "judged": split,
            "chosen_on": found["pairs"].signature()["data_sha256"],
        }
        open_run(run, signature, command=command)
        if table is None:
            table = scored(heads, task, run)
            orderings = [headlab.order(table[f"score_{score}"]) for score in SCORES]
        progress = told(f"masks on {name}", 30)
        curve = headlab.sweep(
            heads, task, orderings, BUDGETS, split=split, seeds=options.seeds, run=run, progress=progress
        )
        headlab.save(run, heads=table, sweep=curve, meta=signature, command=command, format="csv")
        keep(run, Path(options.results) / name, signature, command)


def keep(run: Path, folder: Path, signature: dict[str, Any], command: str) -> None:
    """The small files of a run, and its figures, in the results."""
    from headlab.report.pictures import write_brief

    write_brief(run)
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        shutil.copyfile(run / name, folder / name)
    for figure in (run / "figures").glob("*.png"):
        shutil.copyfile(figure, folder / figure.name)
    write_meta(folder, signature, command=command)


if __name__ == "__main__":
    main()
