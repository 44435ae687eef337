"""Build a tiny model of every model type in transformers and record which attention headlab sees and can remove.

    python -m scripts.experiments.architectures.run [--types bert,t5] [--groups language,vision] [--out FOLDER]

Each type runs in a process of its own, forked from one that has imported everything, with limits of time and memory.
Exits with 3 if something that headlab claims about a model is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pandas as pd
import torch
import transformers
from transformers.utils import logging

from headlab.testing.tiny.models import MAPPINGS
from scripts.experiments.architectures.examine import OUTPUT_TOLERANCE, STATISTIC_TOLERANCE, examine, first_line
from scripts.experiments.shared.folders import ROOT

GROUPS = {"language": ("seq2seq-lm", "masked-lm", "causal-lm"), "vision": ("image",), "speech": ("speech",)}
PURPOSE = {"language": "lm", "vision": "image", "speech": "speech"}
COLUMNS = (
    "group",
    "type",
    "class",
    "parameters",
    "built",
    "expected",
    "softmaxes",
    "seen",
    "heads",
    "tier",
    "outcome",
    "unseen",
    "outputs",
    "maps",
    "gates",
    "masked_layers",
    "masked_heads",
    "mask_gap",
    "mask_effect",
    "compared_layers",
    "statistics_gap",
    "wrong",
    "reason",
)
OUTCOMES = (
    "proven",
    "partial",
    "statistics only",
    "refused",
    "no softmax attention",
    "crashed",
    "not built",
    "stopped",
)


def main() -> int:
    """Examine every type, write the table, the summary and the matrix; 3 where a claim is wrong."""
    options = _arguments()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    for warm in ("llama", "t5", "bloom"):  # imports what every child needs
        examine(warm, "lm")
    work = [(group, name) for group in options.groups for name in types_of(group)]
    work = [(group, name) for group, name in work if not options.types or name in options.types]
    for group in options.groups:
        print(f"{group}: {sum(each == group for each, _ in work)} model types")
    started = time.monotonic()
    rows = run_all(work, jobs=options.jobs, seconds=options.seconds, memory=options.memory << 20)
    seconds = time.monotonic() - started
    table = pd.DataFrame(rows).reindex(columns=COLUMNS).sort_values(["group", "type"], ignore_index=True)
    write(table, options.out, seconds, complete=not options.types)
    print(matrix(table))
    wrong = table[table["wrong"].fillna("") != ""]
    for line in wrong.itertuples():
        print(f"WRONG {line.type}: {line.wrong}", file=sys.stderr)
    return 3 if len(wrong) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which model types headlab sees into, each built tiny and checked.")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "coverage")
    parser.add_argument("--types", type=lambda text: text.split(","), default=[], help="only these, with commas")
    parser.add_argument(
        "--groups", type=lambda text: text.split(","), default=list(GROUPS), help="of " + ",".join(GROUPS)
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds for one type")
    parser.add_argument("--memory", type=int, default=3_000, help="MB for one type beyond what it starts with")
    return parser.parse_args()


def types_of(group: str) -> list[str]:
    """Every model type with a class in the group's mappings, sorted."""
    return sorted({name for purpose in GROUPS[group] for name in MAPPINGS[purpose]})


def run_all(work: list[tuple[str, str]], *, jobs: int, seconds: float, memory: int) -> list[dict[str, Any]]:
    """Each type in a forked process, `jobs` at a time; a killed one is recorded as stopped."""
    rows, running, waiting = [], {}, list(reversed(work))
    while waiting or running:
        while waiting and len(running) < jobs:
            group, name = waiting.pop()
            pid, pipe = _fork(name, PURPOSE[group], seconds, memory)
            running[pid] = (group, name, pipe)
        pid, status = os.wait()
        group, name, pipe = running.pop(pid)
        with os.fdopen(pipe, "rb") as stream:
            told = stream.read()
        row = json.loads(told) if told else _stopped(name, status)
        rows.append({"group": group, **row})
        print(f"[{len(rows)}/{len(work)}] {name}: {row['outcome']} {row.get('wrong', '')}", file=sys.stderr)
    return rows


def _fork(name: str, purpose: str, seconds: float, memory: int) -> tuple[int, int]:
    """Start the examination of one type; returns the process and where its line can be read."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        limit = _address_space() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (int(_cpu_seconds() + seconds),) * 2)
        signal.alarm(int(10 * seconds))  # waiting costs no CPU time
        row = examine(name, purpose)
    except BaseException as error:  # nothing of a child may go on in the parent's code
        row = {"type": name, "built": False, "outcome": "stopped", "reason": first_line(error)}
    os.write(writing, json.dumps(row).encode())  # shorter than a pipe's buffer
    os._exit(0)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _cpu_seconds() -> float:
    return sum(os.times()[:2])


def _stopped(name: str, status: int) -> dict[str, Any]:
    code = os.waitstatus_to_exitcode(status)
    reason = {-signal.SIGXCPU: "out of time", -signal.SIGALRM: "out of time"}.get(code, f"ended with {code}")
    return {"type": name, "built": False, "outcome": "stopped", "reason": reason}


def write(table: pd.DataFrame, out: Path, seconds: float, *, complete: bool) -> None:
    """coverage.csv (one line a type), summary.json, matrix.md, meta.json."""
    out.mkdir(parents=True, exist_ok=True)
    table.to_csv(out / "coverage.csv", index=False, float_format="%.3g")
    (out / "summary.json").write_text(json.dumps(summary(table), indent=2) + "\n")
    (out / "matrix.md").write_text(matrix(table))
    meta = {
        "signature": {
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "seed": 0,
            "dtype": "float32",
            "complete": complete,
            "output_tolerance": OUTPUT_TOLERANCE,
            "statistic_tolerance": STATISTIC_TOLERANCE,
        },
        "command": "python -m scripts.experiments.architectures.run",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds),
        "cpu_seconds": round(sum(os.times()[:4])),
        "schema": 1,
    }
    (out / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")


def summary(table: pd.DataFrame) -> dict[str, Any]:
    """Counts by group and outcome, and by name whatever is not proven."""
    found: dict[str, Any] = {}
    for group, rows in table.groupby("group"):
        outcomes = Counter(rows["outcome"])
        found[str(group)] = {
            "types": len(rows),
            "built": int(rows["built"].sum()),
            "outcomes": {name: outcomes[name] for name in OUTCOMES if outcomes[name]},
            "proven_by_tier": {str(int(t)): int(n) for t, n in _proven(rows)["tier"].value_counts().items()},
            "wrong": sorted(rows.loc[rows["wrong"].fillna("") != "", "type"]),
            **{name: sorted(rows.loc[rows["outcome"] == name, "type"]) for name in OUTCOMES[1:] if outcomes[name]},
        }
    return found


def _proven(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["outcome"] == "proven") & (rows["wrong"].fillna("") == "")]


def matrix(table: pd.DataFrame) -> str:
    """A short table in markdown: what can be said about how many types, and about which not everything."""
    groups = [group for group in GROUPS if group in set(table["group"])]
    lines = ["| | " + " | ".join(f"{group} models" for group in groups) + " |", "|---" * (len(groups) + 1) + "|"]
    by_group = {group: table[table["group"] == group] for group in groups}

    def line(name: str, count: Any) -> None:
        lines.append(f"| {name} | " + " | ".join(str(count(by_group[group])) for group in groups) + " |")

    line("model types", len)
    line("built tiny and run", lambda rows: int(rows["built"].sum()))
    for tier, how in ((1, "by the attention interface"), (2, "by a tap on softmax")):
        line(
            f"every head seen and removable, proven: {how}",
            lambda rows, t=tier: int((_proven(rows)["tier"] == t).sum()),
        )
    words = {
        "partial": "some layers proven, the others named",
        "statistics only": "statistics only",
        "refused": "refused, with the reason",
        "no softmax attention": "has no softmax attention",
        "crashed": "crashed",
        "not built": "not built",
        "stopped": "out of time or memory",
    }
    for outcome, text in words.items():
        if (table["outcome"] == outcome).any():
            line(text, lambda rows, o=outcome: int((rows["outcome"] == o).sum()))
    line("wrong claims", lambda rows: int((rows["wrong"].fillna("") != "").sum()))
    named = [
        f"{text}: {', '.join(table.loc[table['outcome'] == outcome, 'type'])}."
        for outcome, text in words.items()
        if (table["outcome"] == outcome).any()
    ]
    return "\n".join([*lines, "", *[text[0].upper() + text[1:] + "\n" for text in named]]).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
