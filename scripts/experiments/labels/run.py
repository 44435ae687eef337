"""What the heads of the demo models do: label tables and maps, controls on random weights, and what was known before.

    HEADLAB_DATA=FOLDER python -m scripts.experiments.labels.run [--parts tables,syntax,distances,no_op] [--out FOLDER]

Texts: 100 WikiText-2 validation paragraphs of at most 128 tokens (encoders), 100 windows of 64 tokens of it (SmolLM2),
300 sentence pairs of newstest2019 (the Firefox student, whose decoder is given the human translation). Alignments of
those pairs are silver: a word with a digit or a capital letter that stands once in the sentence and once, spelt alike,
in its translation. Each part writes its tables whole; README.md is made from the tables of all parts that are there.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers

import headlab
from headlab import Batch, Heads
from headlab.attention.observe.similarity import random_texts
from headlab.base.masks import head_names
from headlab.labels import default_labels
from headlab.labels.inputs.context import InputContext
from headlab.models import Checkpoint
from headlab.models.random_weights import random_weights
from headlab.models.texts.treebanks import read_conllu
from headlab.models.texts.windows import token_windows
from headlab.report import figures
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta
from headlab.runs.tables import save_table
from scripts.experiments.labels import tables as experiments
from scripts.experiments.labels.readme import write_readme
from scripts.experiments.shared.folders import public_data

MODELS = {
    "minilm": "demo:minilm",
    "tagger": "demo:distilbert-tagger",
    "smollm2": "demo:smollm2",
    "firefox": "demo:firefox-en-pt",
}
TEXTS, PAIRS, SENTENCES = 100, 300, 400
SHORTEST = 200  # characters of a paragraph
OWN_INPUT = ("copying", "duplicate_token", "induction", "retrieval")
DATA = ("ud", "wikitext", "ntrex")
ANCHOR = re.compile(r"\w*[\dA-Z]\w*[.,:]?\w*")


def paragraphs() -> list[str]:
    """WikiText-2 validation without headings and short lines."""
    lines = (public_data(*DATA) / "wikitext" / "wiki2.valid.txt").read_text(encoding="utf-8").split("\n")
    return [line.strip() for line in lines if len(line) >= SHORTEST and not line.startswith(" =")]


def silver_alignments(folder: Path) -> tuple[Path, Path, Path]:
    """Files of sources, targets and sure links for the pairs of newstest2019 that have one."""
    sides = [
        (public_data(*DATA) / "ntrex" / f"newstest2019.first1000.{language}").read_text(encoding="utf-8").split("\n")
        for language in ("en", "pt-BR")
    ]
    kept = []
    for source, target in zip(*sides, strict=True):
        words = source.split(), target.split()
        links = [
            f"{words[0].index(word)}-{words[1].index(word)}"
            for word in dict.fromkeys(words[0])
            if ANCHOR.fullmatch(word) and len(word) > 1 and words[0].count(word) == words[1].count(word) == 1
        ]
        if links:
            kept.append((source, target, " ".join(links)))
    paths = folder / "en", folder / "pt", folder / "links"
    for path, lines in zip(paths, zip(*kept[:PAIRS], strict=True), strict=True):
        path.write_text("\n".join(lines), encoding="utf-8")
    return paths


def texts_of(name: str, checkpoint: Checkpoint, folder: Path) -> tuple[list[Batch], list[Any]]:
    """The texts for a model, and the labels that are asked of it."""
    names: list[Any] = default_labels()
    if name == "firefox":
        aligned = headlab.load_labels(["alignment"], alignments=silver_alignments(folder))
        context = InputContext(checkpoint.model, checkpoint)
        return aligned[0].input.batches(context), [*names, *aligned]
    if name == "smollm2":
        return token_windows(checkpoint, paragraphs(), length=64, limit=TEXTS), [*names, *OWN_INPUT]
    batches = headlab.text_batches(checkpoint, paragraphs()[:TEXTS], max_length=128)
    return batches, [*names, "duplicate_token", "induction"]


def label_tables(name: str, checkpoint: Checkpoint, out: Path) -> None:
    """The head table with its figures, and how many heads carry each label beside the control of random weights."""
    with tempfile.TemporaryDirectory() as folder:
        batches, labels = texts_of(name, checkpoint, Path(folder))
        table = Heads(checkpoint).observe(batches, labels=labels)
        control = [label for label in labels if label != "retrieval"]  # a model that says nothing retrieves nothing
        drawn = Heads(random_weights(checkpoint, seed=0)).observe(batches, labels=control)
    loaded = headlab.load_labels(labels)
    experiments.update(out / "counts.csv", pd.DataFrame([_count(label, table, drawn) for label in loaded]), name)
    run = out / name
    # Half of the columns are the statistics over words; the error rate would need all links, not the silver ones.
    table = table.drop(columns=[c for c in table if c.endswith("_words") or c == "alignment_aer"])
    save_table(table.round(4), run, "heads", "csv")
    figures.save_figure(figures.label_map(table), run / "labels", ["png"])
    n = sum(len(batch) for batch in batches)
    tokens = sum(int(batch.source.valid.sum()) for batch in batches)
    signature = {
        "model": checkpoint.describe(),
        "n_texts": n,
        "n_tokens": tokens,
        "seed": 0,
        "ids": _hash(batches),
        "labels": [label.name for label in loaded],
    }
    write_meta(run, signature, command="python -m scripts.experiments.labels.run --parts tables")


def sentences(name: str, checkpoint: Checkpoint, out: Path) -> None:
    """The columns by which heads were known before, on sentences of the treebank."""
    texts = [sentence.text for sentence in read_conllu(public_data(*DATA) / "ud" / "en_ewt-dev.conllu")[:SENTENCES]]
    batches = headlab.text_batches(checkpoint, texts)
    table = Heads(checkpoint).observe(batches, labels=["cls"])
    columns = ["prev_mass", "next_mass", "next_mass_words", "separator_mass", "cls", "cls_score"]
    save_table(table[columns].round(4), out / name / "sentences", "heads", "csv")
    signature = {"model": checkpoint.describe(), "n_texts": len(texts), "seed": 0, "ids": _hash(batches)}
    write_meta(out / name / "sentences", signature, command="python -m scripts.experiments.labels.run --parts tables")


def _hash(batches: list[Batch]) -> str:
    found = hashlib.sha256()
    for batch in batches:
        found.update(batch.source.ids.numpy().tobytes())
    return found.hexdigest()[:16]


def _count(label: Any, table: pd.DataFrame, drawn: pd.DataFrame) -> dict[str, Any]:
    """How many heads carry a label, the strongest, and the same of random weights."""
    name = label.name
    scores = table[f"{name}_score"]
    best = scores.idxmax() if scores.notna().any() else None
    row: dict[str, Any] = {
        "label": name,
        "heads": len(table),
        "undefined": int(table[name].isna().sum()),
        "with_label": int(table[name].sum()),
        "strongest": best and _name(best, table),
    }
    for column in ("score", "low", "high", "null", "threshold", "n", "norm_share"):
        row[column] = table.loc[best, f"{name}_{column}"] if best and f"{name}_{column}" in table else None
    there = name in drawn
    row["random_weights_with_label"] = int(drawn[name].sum()) if there else None
    row["random_weights_highest"] = drawn[f"{name}_score"].max() if there else None
    return row | {"null_is": label.null}


def _name(head: tuple[str, int, int], table: pd.DataFrame) -> str:
    """`L3H5`, or `X1H0` in a model with several kinds of attention."""
    return head_names([head], single_stack=table.index.get_level_values("kind").nunique() == 1)[0]


def sinks(checkpoint: Checkpoint, out: Path) -> None:
    """Attention of SmolLM2 to the first token: on text, on random tokens, on one repeated token."""
    heads = Heads(checkpoint)
    text = token_windows(checkpoint, paragraphs(), length=64, limit=TEXTS)
    size = checkpoint.model.config.vocab_size
    inputs = {"text": text, "random tokens": random_texts(text, vocabulary=size), "one repeated token": _constant(text)}
    parts = []
    for name, batches in inputs.items():
        table = heads.observe(batches, labels=["sink"], statistics=["first_mass"])
        parts.append(table[["first_mass", "sink_score", "sink_share"]].reset_index().assign(input=name))
    write_atomically(out / "sinks.csv", pd.concat(parts).round(4).to_csv(index=False))


def _constant(batches: list[Batch]) -> list[Batch]:
    found = []
    for batch in batches:
        ids = batch.source.ids[:, :1].expand_as(batch.source.ids).contiguous()
        found.append(Batch(dict(batch.inputs) | {"input_ids": ids}, batch.source, examples=batch.examples))
    return found


def copies(checkpoint: Checkpoint, out: Path) -> None:
    """Loss of SmolLM2 on the first and the second of two copies of 50 random tokens."""
    label = headlab.load_labels(["induction"])[0]
    (batch,) = label.input.batches(InputContext(checkpoint.model, checkpoint, causal=True))
    with torch.no_grad():
        logits = checkpoint.model(**batch.inputs).logits[:, :-1].float()
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.source.ids[:, 1:].flatten(), reduction="none")
    each, period = each.view(len(batch), -1), batch.extra["period"]
    row = {
        "texts": len(batch),
        "period": period,
        "first_copy": float(each[:, : period - 1].mean()),
        "second_copy": float(each[:, period:].mean()),
    }
    write_atomically(out / "copies.csv", pd.DataFrame([row]).round(3).to_csv(index=False))


def main() -> None:
    """Run the parts that are asked for, model by model, then write what was found beside what was known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="tables,syntax,distances,no_op")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--limit", type=int, help="sentences of the treebank")
    parser.add_argument("--out", type=Path, default=Path("results/labels"))
    options = parser.parse_args()
    parts = options.parts.split(",")
    for name in options.models.split(","):
        checkpoint = headlab.open_model(MODELS[name], purpose="lm" if name == "smollm2" else "auto")
        if "tables" in parts:
            label_tables(name, checkpoint, options.out)
            if name in ("minilm", "tagger"):
                sentences(name, checkpoint, options.out)
            if name == "smollm2":
                sinks(checkpoint, options.out)
                copies(checkpoint, options.out)
        if "syntax" in parts and name in ("minilm", "tagger"):
            treebank = public_data(*DATA) / "ud" / "en_ewt-dev.conllu"
            experiments.syntax(name, checkpoint, treebank, options.out, options.limit)
        if {"distances", "no_op"} & set(parts):
            with tempfile.TemporaryDirectory() as folder:
                batches, _ = texts_of(name, checkpoint, Path(folder))
            if "distances" in parts:
                experiments.distances(name, checkpoint, batches, options.out)
            if "no_op" in parts and name in ("tagger", "smollm2"):
                experiments.no_op(name, checkpoint, batches, options.out)
        print(f"{name}: done", flush=True)
    describe(options.out)


def describe(out: Path) -> None:
    """README.md, and the signature of the tables of several models; the models' own are in their folders."""
    files = {
        "wikitext": "wikitext/wiki2.valid.txt",
        "treebank": "ud/en_ewt-dev.conllu",
        "pairs": "ntrex/newstest2019.first1000.en",
    }
    folder = public_data(*DATA)
    hashes = {name: hashlib.sha256((folder / file).read_bytes()).hexdigest()[:16] for name, file in files.items()}
    counts = {"texts": TEXTS, "pairs": PAIRS, "sentences": SENTENCES, "control": experiments.CONTROL}
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    write_meta(
        out, {"data": hashes, "n": counts, "seed": 0, **versions}, command="python -m scripts.experiments.labels.run"
    )
    write_readme(out)


if __name__ == "__main__":
    main()
