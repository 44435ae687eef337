"""What labels cost: the statistics pass with all labels that read the same texts, against the plain one.

Both look at the same text one after the other, text by text, and processor time is counted, not that of the clock, so
that the ratio holds whatever else the machine does.
What is no part of such a pass is measured apart: the same on random weights (the control), labels that bring their own
input, and the gradient with respect to attention by key class. Peak memory is the process's resident memory above what
it was before, for a tenth of the texts and for all of them.

    python -m scripts.benchmarks.labels [--model demo:smollm2] [--texts 100] [--tokens 512] [--out results/bench_labels]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import headlab
from headlab import Batch, Heads, Tokens
from headlab.labels import default_labels
from headlab.models import Checkpoint
from headlab.models.demo.texts import demo_prose
from headlab.models.random_weights import random_weights
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta
from scripts.benchmarks.capture import PeakMemory
from scripts.experiments.labels.tables import next_token

OWN_INPUT = ("copying", "duplicate_token", "induction", "retrieval")
GRADIENTS = ("sink", "punctuation")


def texts_of(checkpoint: Checkpoint, count: int, length: int) -> list[Batch]:
    """Single texts of `length` tokens: the package's prose from a different token on each time, over and over."""
    ids = checkpoint.tokenizer("\n".join(demo_prose()), add_special_tokens=False, verbose=False)["input_ids"]
    found = []
    for number in range(count):
        row = torch.tensor(np.resize(np.roll(ids, -37 * number), length))[None]
        real, none = torch.ones_like(row, dtype=torch.bool), torch.zeros_like(row, dtype=torch.bool)
        inputs = {"input_ids": row, "attention_mask": real.long()}
        found.append(Batch(inputs, Tokens(row, real, none, none), examples=(number,)))
    return found


def seconds(run: Callable[[], object]) -> float:
    """Processor time of a call, of all threads together."""
    begun = time.process_time()
    run()
    return time.process_time() - begun


def side_by_side(heads: Heads, texts: list[Batch], labels: list[str]) -> pd.DataFrame:
    """Seconds of both passes for each text, which of them is first in turns."""
    rows = []
    ways = {"statistics": [], "statistics and labels": labels}
    for way in ways.values():
        heads.observe(texts[:1], labels=way)  # buffers and code paths warm for both alike
    for number, text in enumerate(texts):
        order = list(ways) if number % 2 == 0 else list(ways)[::-1]
        rows.append({way: seconds(partial(heads.observe, [text], labels=ways[way])) for way in order})
        if (number + 1) % 10 == 0:
            print(f"{number + 1} texts", flush=True)
    return pd.DataFrame(rows)[list(ways)]


def memory(heads: Heads, texts: list[Batch], labels: list[str]) -> dict[int, float]:
    """Peak megabytes of one pass with all labels, by number of texts."""
    found = {}
    for count in (max(1, len(texts) // 10), len(texts)):
        with PeakMemory() as peak:
            heads.observe(texts[:count], labels=labels)
        found[count] = peak.megabytes
    return found


def measure(checkpoint: Checkpoint, texts: list[Batch]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Times by part, and peak memory by number of texts."""
    heads, labels = Heads(checkpoint), default_labels()
    both = side_by_side(heads, texts, labels)
    ratios = both["statistics and labels"] / both["statistics"]
    plain = both["statistics"].sum()
    parts = {
        "statistics": (plain, len(texts)),
        f"statistics and {len(labels)} labels": (both["statistics and labels"].sum(), len(texts)),
    }
    peaks = memory(heads, texts, labels)
    few = texts[: max(1, len(texts) // 10)]
    control = Heads(random_weights(checkpoint, seed=0))
    parts["random-weights control, the same labels"] = (seconds(lambda: control.observe(few, labels=labels)), len(few))
    alone = seconds(lambda: heads.observe(few[:1]))  # the text that observe needs beside labels with an own input
    for label in OWN_INPUT:
        own = seconds(partial(heads.observe, few[:1], labels=[label])) - alone
        parts[f"label with its own input: {label}"] = (own, 0)
    together = seconds(lambda: heads.observe(few[:1], labels=list(OWN_INPUT))) - alone
    parts["labels with their own input, together"] = (together, 0)
    keys = headlab.load_labels(GRADIENTS)
    slopes = seconds(lambda: headlab.key_gradients(heads, few, next_token, keys))
    parts["gradient columns"] = (slopes, len(few))
    rows = []
    for part, (took, count) in parts.items():
        per_text = took / count if count else None
        relative = per_text / (plain / len(texts)) if per_text else None
        rows.append(
            {"part": part, "texts": count, "seconds": took, "seconds_a_text": per_text, "times_statistics": relative}
        )
    table = pd.DataFrame(rows)
    table.loc[1, ["ratio_median", "ratio_low", "ratio_high"]] = [
        statistics.median(ratios),
        ratios.quantile(0.1),
        ratios.quantile(0.9),
    ]
    return table, pd.DataFrame([{"texts": count, "peak_mb": peak} for count, peak in peaks.items()])


def main() -> None:
    """Measure, print the tables and keep them with their signature."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo:smollm2")
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--out", type=Path, default=Path("results/bench_labels"))
    options = parser.parse_args()
    checkpoint = headlab.open_model(options.model, purpose="lm")
    table, peaks = measure(checkpoint, texts_of(checkpoint, options.texts, options.tokens))
    write_atomically(options.out / "bench_labels.csv", table.round(3).to_csv(index=False))
    write_atomically(options.out / "memory.csv", peaks.round(1).to_csv(index=False))
    sizes = {"texts": options.texts, "tokens": options.tokens}
    signature = checkpoint.describe() | sizes | {"threads": torch.get_num_threads(), "labels": default_labels()}
    command = f"python -m scripts.benchmarks.labels --model {options.model}"
    command += "".join(f" --{name} {size}" for name, size in sizes.items())
    write_meta(options.out, signature, command=command)
    print(table.to_string(index=False))
    print(peaks.to_string(index=False))


if __name__ == "__main__":
    main()
