"""What a command needs before it says anything: seconds of fresh processes, beside what torch and transformers need.

Each row is one process per repeat, all rows interleaved; `seconds` until it ends, or until what is named appears on
its stderr. Processor time is shown too, since it hardly changes with what else the machine does.

    python -m scripts.benchmarks.start_up [--repeats 7] [--model demo:minilm] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import headlab
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta

NEW = "{new}"  # a folder that is not there yet, another one for each process


class Process(NamedTuple):
    """A row: arguments of Python, and the text on stderr to wait for (None: the end)."""

    name: str
    arguments: list[str]
    until: bytes | None = None


def processes(model: str, folder: Path) -> list[Process]:
    """The rows, from the interpreter alone to the steps of a command that opens a model."""
    line = ["-m", "headlab"]
    small = [*line, "dump", model, "--limit", "2", "--max-length", "24", "--labels", "none"]
    subprocess.run([sys.executable, *small, "--out", str(folder / "run"), "--quiet"], check=True, capture_output=True)
    dump = [*small, "--out", NEW]
    return [
        Process("python", ["-c", "pass"]),
        Process("import headlab", ["-c", "import headlab"]),
        Process("headlab --help", [*line, "--help"]),
        Process("headlab list", [*line, "list"]),
        Process(
            "headlab report (a small run)", [*line, "report", str(folder / "run"), "--out", str(folder / "r.html")]
        ),
        Process("import torch", ["-c", "import torch"]),
        Process("import torch, transformers", ["-c", "import torch, transformers.modeling_utils"]),
        Process("headlab dump: first line", dump, b"loading"),
        Process("headlab dump: opening the model", dump, b"opening"),
        Process("headlab dump: model opened", dump, b"probing"),
        Process("headlab dump: done", dump),
    ]


def measure(process: Process, folder: Path) -> tuple[float, float]:
    """Wall and processor seconds of one process until what it is waited for; it is ended there."""
    new = tempfile.mktemp(dir=folder)
    arguments = [new if argument == NEW else argument for argument in process.arguments]
    begun = time.perf_counter()
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
    assert child.stderr is not None
    said = b""
    while part := os.read(child.stderr.fileno(), 1 << 16):
        said += part
        if process.until is not None and process.until in said:
            break
    else:
        if process.until is not None:
            raise SystemExit(f"{process.name} never said {process.until.decode()}:\n{said.decode()}")
    seconds = time.perf_counter() - begun
    if process.until is not None:
        child.kill()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if process.until is None:
        seconds = time.perf_counter() - begun
        if child.returncode:
            raise SystemExit(f"{process.name} failed:\n{said.decode()}")
    return seconds, used.ru_utime + used.ru_stime


def table_of(rows: list[Process], repeats: int, folder: Path) -> pd.DataFrame:
    """Median, lowest and highest seconds of each row, and median processor seconds."""
    measured: dict[str, list[tuple[float, float]]] = {row.name: [] for row in rows}
    for row in rows:
        measure(row, folder)  # files read once by all alike
    for _ in range(repeats):
        for row in rows:
            measured[row.name].append(measure(row, folder))
    found = []
    for name, times in measured.items():
        wall, cpu = zip(*times, strict=True)
        facts = {"seconds": statistics.median(wall), "low": min(wall), "high": max(wall), "cpu": statistics.median(cpu)}
        found.append({"what": name} | {key: round(value, 3) for key, value in facts.items()} | {"repeats": repeats})
    return pd.DataFrame(found)


def main() -> None:
    """Measure, print the table and, with --out, keep it with its signature."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(processes(options.model, Path(folder)), options.repeats, Path(folder))
    print(table.to_string(index=False))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out / "start_up.csv", table.to_csv(index=False))
        versions = {"python": platform.python_version(), "headlab": headlab.__version__}
        signature = {"model": options.model, "repeats": options.repeats, "cores": os.cpu_count(), **versions}
        command = f"python -m scripts.benchmarks.start_up --repeats {options.repeats} --model {options.model}"
        write_meta(options.out, signature, command=f"{command} --out {options.out}")


if __name__ == "__main__":
    main()
