"""Parts of the run: syntactic heads, how alike the heads of a layer are, attention that does nothing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from torch import Tensor, nn

import headlab
from headlab import Batch, Heads
from headlab.attention.observe.similarity import random_texts
from headlab.base.masks import head_names
from headlab.labels.syntactic import Treebank
from headlab.models import Checkpoint
from headlab.models.random_weights import random_weights
from headlab.runs.files import write_atomically
from headlab.runs.similarity import layers_hold_together

RELATIONS = ("det", "nsubj", "obj", "case", "compound", "aux", "amod")
CONTROL = 400  # sentences that random weights read
COMPARED = {"smollm2": 6}  # texts on which heads are compared, fewer for a model of 270 heads
KEYS = {"tagger": ("separator", "cls", "punctuation"), "smollm2": ("sink", "punctuation")}


def update(path: Path, rows: pd.DataFrame, model: str) -> None:
    """Put the rows of a model in the place of its older ones in a table of all models."""
    rows = pd.concat([pd.Series(model, rows.index, name="model"), rows.drop(columns="model", errors="ignore")], axis=1)
    if path.exists():
        older = pd.read_csv(path)
        rows = pd.concat([older[older["model"] != model], rows])
    write_atomically(path, rows.to_csv(index=False, float_format="%.4g"))


def syntax(name: str, checkpoint: Checkpoint, conllu: Path, out: Path, limit: int | None = None) -> None:
    """For each relation and direction the best head of the even sentences, and what it is worth on the odd ones.

    The control of random weights reads the first 400 sentences.
    """
    names = [f"syntactic:{relation}" for relation in RELATIONS]
    labels = headlab.load_labels(names, conllu=Treebank(str(conllu), limit=limit))
    fewer = headlab.load_labels(names, conllu=Treebank(str(conllu), limit=min(limit or CONTROL, CONTROL)))
    some = headlab.text_batches(checkpoint, ["Each label here brings its own sentences."])
    trained = Heads(checkpoint).observe(some, labels=labels)
    drawn = Heads(random_weights(checkpoint, seed=0)).observe(some, labels=fewer)
    rows = []
    for label in labels:
        key = label.name
        best = trained[f"{key}_select"].idxmax()
        row = {"relation": key.split(":")[1], "direction": key.split(":")[2], "head": head_names([best])[0]}
        for column in ("select", "select_null", "select_n", "score", "low", "high", "null", "n", "q"):
            row[column] = trained.loc[best, f"{key}_{column}"]
        row["above_baseline"] = row["low"] > row["null"]
        row["with_label"] = bool(trained.loc[best, key])
        row["heads_with_label"] = int(trained[key].sum())
        row["random_weights_score"] = drawn.loc[drawn[f"{key}_select"].idxmax(), f"{key}_score"]
        rows.append(row)
    update(out / "syntax.csv", pd.DataFrame(rows), name)


def distances(name: str, checkpoint: Checkpoint, batches: list[Batch], out: Path) -> None:
    """Mean divergence of heads within layers and between them, on text and on random tokens, and for random weights."""
    shown = _first(batches, COMPARED.get(name, 20))
    config = checkpoint.model.config
    inputs = {"text": shown, "random tokens": random_texts(shown, vocabulary=config.vocab_size)}
    rows = []
    for weights, opened in (("trained", checkpoint), ("random", random_weights(checkpoint, seed=0))):
        heads = Heads(opened)
        for texts, given in inputs.items():
            for kind in dict.fromkeys(heads.index.get_level_values("kind")):
                found = layers_hold_together(headlab.head_distances(heads, given, kind=kind))
                n = sum(len(batch) for batch in given)
                rows.append({"kind": kind, "weights": weights, "texts": texts, "n_texts": n, **found})
    update(out / "distances.csv", pd.DataFrame(rows), name)


def _first(batches: list[Batch], count: int) -> list[Batch]:
    """Whole batches until there are `count` texts, the last one cut."""
    found: list[Batch] = []
    for batch in batches:
        room = count - sum(len(one) for one in found)
        if room > 0:
            found.append(_rows(batch, room))
    return found


def _rows(batch: Batch, count: int) -> Batch:
    def cut(value: object) -> object:
        return value[:count] if isinstance(value, Tensor) and value.shape[:1] == batch.source.ids.shape[:1] else value

    inputs = {name: cut(value) for name, value in batch.inputs.items()}
    target = None if batch.target is None else batch.target.map(lambda tensor: tensor[:count])
    return Batch(inputs, batch.source.map(lambda tensor: tensor[:count]), target, batch.examples[:count])


def own_tags(model: nn.Module, batch: Batch) -> Tensor:
    """Mean -ln p of the tags that the tagger itself gives to the words of each text: no gold tags are needed."""
    scores = model(**batch.inputs).logits.log_softmax(-1).amax(-1)
    words = (batch.source.valid & ~batch.source.special).float()
    return -(scores * words).sum(-1) / words.sum(-1)


def next_token(model: nn.Module, batch: Batch) -> Tensor:
    """Mean -ln p of the tokens of each text but the first."""
    scores = model(**batch.inputs).logits[:, :-1].log_softmax(-1)
    return -scores.gather(-1, batch.source.ids[:, 1:, None]).squeeze(-1).mean(-1)


def no_op(name: str, checkpoint: Checkpoint, batches: list[Batch], out: Path) -> None:
    """For each head and key class: share of the weights, share of the contributions, and share of the gradient."""
    heads, labels = Heads(checkpoint), headlab.load_labels(KEYS[name])
    table = heads.observe(batches, labels=labels, statistics=["output_norm"])
    loss = own_tags if name == "tagger" else next_token
    slopes = headlab.key_gradients(heads, batches, loss, labels)
    parts = []
    for label in labels:
        key = label.name
        parts.append(
            pd.DataFrame(
                {
                    "keys": key,
                    "carries_label": table[key],
                    "weight_share": table[f"{key}_score"],
                    "norm_share": table[f"{key}_norm_share"],
                    "gradient": slopes[f"gradient_{key}"],
                    "gradient_all": slopes["gradient_all"],
                    "key_share": slopes[f"gradient_{key}_keys"],
                    "gradient_share": slopes[f"gradient_{key}"] / slopes["gradient_all"],
                }
            )
        )
    rows = pd.concat(parts)
    update(out / "no_op.csv", rows.reset_index(), name)
