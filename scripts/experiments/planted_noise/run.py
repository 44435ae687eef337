"""How much noise in the logits each label of each planted head stands: writes results/planted/."""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from headlab import Heads, text_batches
from headlab.labels import default_labels, load_labels
from headlab.models.demo.checkpoints import PLANTING
from headlab.models.planted.language import planted_texts, planted_treebank
from headlab.models.planted.models import KINDS, planted_heads, planted_model
from headlab.models.planted.truth import LABELS, UNDEFINED
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta
from scripts.experiments.shared.folders import ROOT

# Standard deviations in nats. The decoder's matches stand far above the rest, its positions only a little.
LEVELS = {
    "encoder": (0, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32),
    "decoder": (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
}
OWN_INPUT = ("copying", "duplicate_token", "induction", "retrieval", "syntactic")
TEXTS = 20
NOTES = {
    "shares.csv": "share of heads (over seeds and layers) with the right answer at each level of noise, in nats",
    "flips.csv": "the lowest level at which a head has a wrong answer: lowest, median and highest over n heads; a "
    "median of inf: more than half of them never have one; flipped: how many have",
    "left out": "labels that do not belong to a head and that it never got; labels that are undefined on these texts",
}
PLACE = ["kind", "planted", "label", "expected"]


def main() -> None:
    """Observe what is not observed yet, then count and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "planted", help="where single runs are kept")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "planted")
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = pd.concat(runs(arguments.runs, arguments.seeds), ignore_index=True)
    shares, flips = counted(found)
    write_atomically(arguments.out / "shares.csv", shares.to_csv(index=False))
    write_atomically(arguments.out / "flips.csv", flips.to_csv(index=False))
    for kind in KINDS:
        draw(shares[shares["kind"] == kind], arguments.out / f"{kind}.png")
    command = f"python -m scripts.experiments.planted_noise.run --seeds {arguments.seeds}"
    write_meta(arguments.out, signature(arguments.seeds), command=command, notes=NOTES)
    print(flips.to_string(index=False))


def runs(folder: Path, seeds: int) -> Iterator[pd.DataFrame]:
    """The labels of every head at every level of noise, for each seed; runs that are there already are read."""
    for seed in range(seeds):
        for kind in KINDS:
            for noise in LEVELS[kind]:
                place = folder / f"{kind}{PLANTING}-seed{seed}-noise{noise:g}.csv"
                if not place.is_file():
                    write_atomically(place, observed(kind, seed, noise).to_csv(index=False))
                yield pd.read_csv(place)


def observed(kind: str, seed: int, noise: float) -> pd.DataFrame:
    """One row for each head and each label that is defined: what is expected, and what was found."""
    checkpoint = planted_model(kind, seed=seed, noise=noise)
    with tempfile.TemporaryDirectory() as folder:
        treebank = Path(folder, "treebank.conllu")
        treebank.write_text(planted_treebank(), encoding="utf-8")
        labels = load_labels([*default_labels(), *OWN_INPUT], conllu=treebank)
        table = Heads(checkpoint).observe(text_batches(checkpoint, planted_texts(kind, texts=TEXTS)), labels)
    planted = planted_heads(kind, seed=seed)
    return pd.DataFrame(
        [
            {
                "kind": kind,
                "seed": seed,
                "noise": noise,
                "head": f"L{head[1]}H{head[2]}",
                "planted": what,
                "label": label.name,
                "expected": label.name in LABELS[kind][what],
                "found": table.loc[head, label.name],
            }
            for head, what in planted.items()
            for label in labels
            if label.name not in UNDEFINED[kind]
        ]
    )


def counted(found: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The share of heads with the right answer at each level, and the lowest level at which each head has a wrong one.

    A label that is undefined (nothing was retrieved) counts as not carried. Left out are pairs of a planted head and a
    label that is not expected and never found.
    """
    found["right"] = found["found"].astype("boolean").fillna(False) == found["expected"]
    concerned = found.groupby(PLACE[:3])[["expected"]].transform("any")["expected"]
    concerned |= ~found.groupby(PLACE[:3])["right"].transform("all")
    found = found[concerned]
    shares = found.groupby([*PLACE, "noise"], sort=False)["right"].agg(share="mean", n="size").reset_index()
    first = found[~found["right"]].groupby([*PLACE, "seed", "head"])["noise"].min()
    heads = found.groupby(PLACE)[["seed", "head"]].apply(lambda rows: len(rows.drop_duplicates()))
    flips = first.groupby(PLACE).agg(lowest="min", median="median", highest="max", flipped="size").reindex(heads.index)
    flips.insert(0, "n", heads)
    flips["flipped"] = flips["flipped"].fillna(0).astype(int)
    # The median over all heads: those that never flip stand above every level.
    never = first.groupby(PLACE).apply(list).reindex(heads.index)
    flips["median"] = [
        float(np.median([*(lows if isinstance(lows, list) else []), *[np.inf] * (n - flipped)]))
        for lows, n, flipped in zip(never, flips["n"], flips["flipped"], strict=True)
    ]
    return shares.sort_values([*PLACE, "noise"]), flips.reset_index()


def draw(shares: pd.DataFrame, path: Path) -> None:
    """Rows are labels of planted heads, those that belong to them first, columns levels of noise."""
    import matplotlib.pyplot as plt

    names = [f"{row.planted}: {'' if row.expected else 'not '}{row.label}" for row in shares.itertuples()]
    table = (
        shares.assign(row=names).pivot_table(index=["expected", "row"], columns="noise", values="share").astype(float)
    )
    table = table.sort_index(ascending=[False, True])
    figure, axes = plt.subplots(figsize=(7.5, 1.2 + 0.2 * len(table)), layout="constrained")
    image = axes.imshow(table.to_numpy(), cmap="RdYlBu", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(table.shape[1]), [f"{level:g}" for level in table.columns], fontsize=8)
    axes.set_yticks(range(len(table)), [row for _, row in table.index], fontsize=7)
    border = sum(bool(expected) for expected, _ in table.index)
    if 0 < border < len(table):
        axes.axhline(border - 0.5, color="black", linewidth=1)
    axes.set_xlabel("noise added to each attention logit (standard deviation, nats)")
    title = f"planted {shares['kind'].iloc[0]}: labels that noise takes (above the line) and gives (below)"
    axes.set_title(title, loc="right", fontsize=10)
    figure.colorbar(image, ax=axes, shrink=min(1.0, 12 / len(table)), label="share of heads with the right answer")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def signature(seeds: int) -> dict:
    """What the numbers are of."""
    texts = {kind: planted_texts(kind, texts=TEXTS) for kind in KINDS}
    described = planted_model("encoder").describe()
    return {
        "models": [f"planted-{kind}" for kind in KINDS],
        "seeds": seeds,
        "levels": LEVELS,
        "n_texts": TEXTS,
        "planting": PLANTING,
        "sha256": hashlib.sha256((repr(texts) + planted_treebank()).encode()).hexdigest(),
        "dtype": described["dtype"],
        "torch": described["torch"],
        "transformers": described["transformers"],
    }


if __name__ == "__main__":
    main()
