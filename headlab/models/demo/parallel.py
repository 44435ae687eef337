"""Sentences in English and Brazilian Portuguese, everyday and news-like, written for this package."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parent / "data" / "parallel.tsv"


def demo_pairs() -> list[tuple[str, str]]:
    """(English, Portuguese) pairs, in the order of the file."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    return [(english, portuguese) for english, portuguese in (line.split("\t") for line in lines)]
