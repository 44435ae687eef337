"""Write the tables of results/ into the README, between their markers; a test checks that they are the same.

python scripts/update_readme.py
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent


def fill(text: str, name: str, content: str) -> str:
    """The README's text with what stands between the markers of `name` replaced."""
    return re.sub(
        rf"<!-- {name} -->\n.*?<!-- /{name} -->", f"<!-- {name} -->\n{content}\n<!-- /{name} -->", text, flags=re.DOTALL
    )


def coverage() -> str:
    """The matrix of the coverage run."""
    return (ROOT / "results/coverage/matrix.md").read_text(encoding="utf-8").strip().split("\n\n")[0]


def bench_capture() -> str:
    """What looking costs, as measured last."""
    table = pd.read_csv(ROOT / "results/bench_capture/bench_capture.csv")
    lines = [
        "SmolLM2 (135M) on 2 cores, `python -m scripts.benchmarks.capture`, median of 5 interleaved runs:",
        "",
        "| tokens | way | times a plain SDPA forward | peak MB above it |",
        "|---|---|---|---|",
    ]
    lines += [f"| {r.tokens:,} | {r.way} | {r.times_sdpa:.2f} | {r.peak_mb_above_sdpa} |" for r in table.itertuples()]
    return "\n".join(lines)


def bench_sweep() -> str:
    """What leaving out every head costs, as measured last."""
    table = pd.read_csv(ROOT / "results/bench_sweep/bench_sweep.csv")
    table = table[table["times_faster"].notna()]
    lines = [
        "Every head left out alone; naive: a whole masked pass for each (CPU time on one thread,",
        "`python -m scripts.benchmarks.sweep`):",
        "",
        "| model, heads, examples | way | times faster | heads of all examples | of the 20 largest |",
        "|---|---|---|---|---|",
    ]
    for row in table.itertuples():
        model = f"{row.model}, {row.heads:.0f}" + ("" if pd.isna(row.examples) else f", {row.examples:.0f}")
        known = ["" if pd.isna(value) else f"{value:.0f}" for value in (row.confirmed_heads, row.of_top_20)]
        lines.append(f"| {model} | {row.way} | {row.times_faster:.2f} | {known[0]} | {known[1]} |")
    return "\n".join(lines)


def which_heads() -> str:
    """What pruning by each score costs a classifier, best first, with the random orders among them."""
    table = pd.read_csv(ROOT / "results/prune_sst2/summary.csv")
    lines = [
        "MiniLM fine-tuned on SST-2 (72 heads; `scripts/experiments/prune_sst2/finetune.py`, then",
        "`scripts/experiments/prune_sst2/run.py`):",
        "drop in accuracy on texts that no score has seen; the interval of `random` is the widest of its orders':",
        "",
        "| order | mean drop, 10 to 90 % removed | drop with half of the heads | 95 % interval |",
        "|---|---|---|---|",
    ]
    for row in table.itertuples():
        name = f"{row.strategy} ({row.orders} orders)" if row.orders > 1 else row.strategy
        between = f" ({row.mean_drop_min:.3f} to {row.mean_drop_max:.3f})" if row.orders > 1 else ""
        lines.append(
            f"| {name} | {row.mean_drop:.3f}{between} | {row.drop_at_half:.3f} | "
            f"{row.ci_low_at_half:.3f} to {row.ci_high_at_half:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Fill every block."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    blocks = {
        "coverage": coverage(),
        "bench_capture": bench_capture(),
        "which-heads": which_heads(),
        "bench_sweep": bench_sweep(),
    }
    for name, content in blocks.items():
        text = fill(text, name, content)
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
