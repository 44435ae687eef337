"""What looking costs: a plain SDPA forward, headlab's statistics, and eager attention with all maps, side by side.

All runs of one length are interleaved in one process, so that the ratios hold whatever else the machine does. Peak
memory is the process's resident memory above what it was before the run, sampled every 2 ms.

    python -m scripts.benchmarks.capture [--model demo:smollm2] [--lengths 512,2048] [--repeats 5] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import torch

from headlab.attention.heads import Heads
from headlab.models import Batch, Checkpoint, Tokens, open_model
from headlab.models.demo.texts import demo_prose
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta

LABELS = ("previous_token", "next_token", "self", "positional", "separator", "broad", "sink")


class PeakMemory:
    """Resident memory above that at entry, in MB, while the block runs."""

    def __enter__(self) -> PeakMemory:
        self._process = psutil.Process()
        self.start = self.peak = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def megabytes(self) -> float:
        return (self.peak - self.start) / 1e6


def text_of(checkpoint: Checkpoint, length: int) -> Batch:
    """One text of exactly `length` tokens from the package's prose, repeated where it is too short."""
    prose = "\n".join(demo_prose())
    ids = checkpoint.tokenizer(prose, return_tensors="pt", add_special_tokens=False)["input_ids"]
    ids = ids.repeat(1, -(-length // ids.shape[1]))[:, :length]
    real, none = torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids, dtype=torch.bool)
    return Batch({"input_ids": ids}, Tokens(ids, real, none, none), examples=(0,))


def ways(checkpoint: Checkpoint, heads: Heads, batch: Batch) -> dict[str, Callable[[], object]]:
    """The ways to look, by name; all run the model without its vocabulary head."""
    trunk = checkpoint.model.base_model
    ids = batch.inputs["input_ids"]

    def sdpa() -> None:
        checkpoint.model.set_attn_implementation("sdpa")
        with torch.no_grad():
            trunk(ids, use_cache=False)

    def headlab_statistics() -> None:
        checkpoint.model.set_attn_implementation("sdpa")
        heads.observe([batch])

    def headlab_labels() -> None:
        checkpoint.model.set_attn_implementation("sdpa")
        heads.observe([batch], labels=LABELS)

    def eager_with_maps() -> None:
        checkpoint.model.set_attn_implementation("eager")
        with torch.no_grad():
            maps = trunk(ids, use_cache=False, output_attentions=True).attentions
        for attention in maps:  # the least that one does with maps
            torch.special.entr(attention).sum(-1).mean(-1)

    return {
        "plain SDPA forward": sdpa,
        "headlab statistics": headlab_statistics,
        "headlab statistics and 7 labels": headlab_labels,
        "eager with all maps, entropy": eager_with_maps,
    }


def measure(checkpoint: Checkpoint, lengths: list[int], repeats: int) -> pd.DataFrame:
    """A row per length and way: median seconds, ratio to SDPA (median over repeats of the pair), peak megabytes."""
    heads = Heads(checkpoint)
    rows = []
    for length in lengths:
        runs = ways(checkpoint, heads, text_of(checkpoint, length))
        for run in runs.values():
            run()  # buffers and code paths warm for all alike
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        peaks: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(repeats):
            for name, run in runs.items():
                with PeakMemory() as memory:
                    begun = time.perf_counter()
                    run()
                    seconds[name].append(time.perf_counter() - begun)
                peaks[name].append(memory.megabytes)
        plain = next(iter(runs))
        for name in runs:
            ratios = [a / b for a, b in zip(seconds[name], seconds[plain], strict=True)]
            rows.append(
                {
                    "tokens": length,
                    "way": name,
                    "seconds": round(statistics.median(seconds[name]), 3),
                    "times_sdpa": round(statistics.median(ratios), 2),
                    "times_sdpa_low": round(min(ratios), 2),
                    "times_sdpa_high": round(max(ratios), 2),
                    "peak_mb": round(max(peaks[name])),
                    "peak_mb_above_sdpa": round(max(peaks[name]) - max(peaks[plain])),
                    "repeats": repeats,
                }
            )
    return pd.DataFrame(rows)


def main() -> None:
    """Measure, print the table and keep it with its signature."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo:smollm2")
    parser.add_argument("--lengths", default="512,2048")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="results/bench_capture")
    options = parser.parse_args()
    checkpoint = open_model(options.model, purpose="lm")
    table = measure(checkpoint, [int(n) for n in options.lengths.split(",")], options.repeats)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "bench_capture.csv", table.to_csv(index=False))
    signature = checkpoint.describe() | {"threads": torch.get_num_threads(), "repeats": options.repeats}
    command = f"python -m scripts.benchmarks.capture --model {options.model} --lengths {options.lengths}"
    write_meta(out, signature, command=command)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
