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
        "SmolLM2 (135M) on 2 cores, `python scripts/bench_capture.py`, median of 5 interleaved runs:", "",
        "| tokens | way | times a plain SDPA forward | peak MB above it |", "|---|---|---|---|",
    ]  # fmt: skip
    lines += [f"| {r.tokens:,} | {r.way} | {r.times_sdpa:.2f} | {r.peak_mb_above_sdpa} |" for r in table.itertuples()]
    return "\n".join(lines)


def main() -> None:
    """Fill every block."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    for name, content in (("coverage", coverage()), ("bench_capture", bench_capture())):
        text = fill(text, name, content)
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
