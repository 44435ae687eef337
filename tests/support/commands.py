"""The command lines that more than one test runs, with the data they read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_sentences(folder: Path, verdicts: Sequence[object]) -> Path:
    """A tsv file of 40 short sentences in `folder` whose column `verdict` takes the two `verdicts` in turn."""
    path = folder / "sentences.tsv"
    rows = [f"{'the' if i % 3 else 'a'} {'cat' if i % 2 else 'dog'} sleeps\t{verdicts[i % 2]}" for i in range(40)]
    path.write_text("sentence\tverdict\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def classification_sweep(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    """The arguments of `headlab sweep` of a classifier over the file of :func:`write_sentences`."""
    return [
        *("sweep", str(model), "--task", "classification", "--data", str(data)),
        *("--text-column", "sentence", "--label-column", "verdict", "--out", str(out), "--quiet"),
        *more,
    ]
