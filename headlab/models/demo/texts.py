"""The small texts that come with the package, all written for it."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data"


def demo_sentences() -> list[tuple[str, str]]:
    """(sentence, label): plain statements, half of them about `nature`, half about `society`."""
    lines = (DATA / "sentences.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(text, label) for text, label in (line.split("\t") for line in lines)]


def demo_prose() -> list[str]:
    """Paragraphs of a short story, in order."""
    return [part.replace("\n", " ") for part in (DATA / "prose.txt").read_text(encoding="utf-8").strip().split("\n\n")]


def demo_minimal_pairs() -> list[dict[str, str]]:
    """Minimal pairs over several phenomena of English: dicts of sentence_good, sentence_bad, paradigm."""
    from headlab.models.demo.minimal_pairs import minimal_pairs

    return minimal_pairs()
