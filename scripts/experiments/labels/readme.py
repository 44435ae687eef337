"""The README of results/labels, made from its tables: what was found beside what was known, and what was not found."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from headlab.report import figures
from headlab.runs.files import write_atomically
from headlab.runs.tables import load_table

# Heads that were known in these checkpoints before headlab labelled them, and the texts that the figures are from.
STATED = (
    ("minilm", "previous token", "L0H2", "prev_mass", 1.00, "sentences"),
    ("minilm", "[CLS]", "L2H9", "cls_score", 0.86, "sentences"),
    ("minilm", "separator, highest of all heads", "max", "separator_mass", 0.16, "sentences"),
    ("tagger", "separator", "L4H2", "separator_mass", 1.00, "sentences"),
    ("tagger", "separator", "L4H9", "separator_mass", 0.99, "sentences"),
    ("tagger", "next token, queries at words", "L0H3", "next_mass_words", 0.98, "sentences"),
    ("tagger", "next token, all queries", "L0H3", "next_mass", 0.85, "sentences"),
    ("smollm2", "previous token", "L16H0", "prev_mass", 0.78, "windows of 64 tokens"),
    ("smollm2", "induction", "L18H6", "induction_score", 0.92, "two copies of 50 random tokens"),
)
MODELS = ("minilm", "tagger", "smollm2", "firefox")


def write_readme(out: Path) -> None:
    """README.md and the pictures that need several tables, from the parts that are there."""
    parts = [
        "# What the heads of the demo models do\n\n"
        "Made by `scripts/experiments/labels/run.py`; its docstring names the texts. "
        "The head tables are in the folders of the models (`headlab report results/labels/minilm` shows one).",
        _counts(out),
        _stated(out),
        _sinks(out),
        _syntax(out),
        _distances(out),
        _no_op(out),
        _missing(out),
    ]
    write_atomically(out / "README.md", "\n\n".join(part for part in parts if part) + "\n")


def _missing(out: Path) -> str:
    """Names what the script would have measured and has not been run for."""
    wanted = {"counts.csv": MODELS, "syntax.csv": MODELS[:2], "distances.csv": MODELS, "no_op.csv": MODELS[1:3]}
    lacking = []
    for name, models in wanted.items():
        there = set(pd.read_csv(out / name)["model"]) if (out / name).exists() else set()
        lacking += [f"{name} of {model}" for model in models if model not in there]
    lacking += [name for name in ("sinks.csv", "copies.csv") if not (out / name).exists()]
    return f"## Not measured yet\n\n{', '.join(lacking)}." if lacking else ""


def _table(rows: pd.DataFrame) -> str:
    """Markdown; numbers as they stand in text."""
    cells = rows.map(_written)
    lines = [list(map(str, rows.columns)), ["---"] * rows.shape[1], *cells.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _written(value: object) -> str:
    """Three digits behind the point; small numbers by their size, so that no p is 0."""
    if not isinstance(value, float):
        return str(value)
    if pd.isna(value):
        return ""
    return f"{value:.0e}" if 0 < abs(value) < 0.0005 else f"{value:.3f}"


def _counts(out: Path) -> str:
    if not (out / "counts.csv").exists():
        return ""
    counts = pd.read_csv(out / "counts.csv")
    said = []
    for label, rows in counts.groupby("label", sort=False):
        cells = {"label": label}
        for model in MODELS:
            row = rows[rows["model"] == model]
            cells[model] = "" if row.empty else _cell(row.iloc[0])
        said.append(cells)
    aligned = counts[counts["label"] == "alignment"]
    note = ""
    if len(aligned):
        row = aligned.iloc[0]
        note = (
            f"\n\nAlignments are silver (names and numbers that stand once on both sides, {int(row['n'])} of them in "
            f"the odd pairs): {row['strongest']} looks at the right word in {row['score']:.3f} of the cases "
            f"({row['low']:.3f} to {row['high']:.3f}), the best fixed offset in {row['null']:.3f}. The student was "
            "trained with its last cross-attention layer guided by alignments, so that such a head had to be there."
        )
    pictures = "\n".join(f"![Labels of {m}]({m}/labels.png)" for m in MODELS if (out / m / "labels.png").exists())
    return (
        "## Labels\n\nHeads with the label / of the same model with random weights; the strongest head and its score. "
        "All evidence, with chance levels (`null_is` says which), is in `counts.csv` and in the head tables.\n\n"
        f"{_table(pd.DataFrame(said))}{note}\n\n{pictures}"
    )


def _cell(row: pd.Series) -> str:
    if row["undefined"] == row["heads"]:
        return "undefined"
    drawn = "-" if pd.isna(row["random_weights_with_label"]) else str(int(row["random_weights_with_label"]))
    return f"{int(row['with_label'])} / {drawn}; {row['strongest']} {row['score']:.2f}"


def _stated(out: Path) -> str:
    rows = []
    for model, what, head, column, stated, texts in STATED:
        folder = out / model / "sentences" if texts == "sentences" else out / model
        if not (folder / "heads.csv").exists():
            continue
        table = load_table(folder, "heads")
        values = table[column] if column in table else pd.Series(float("nan"), table.index)
        if head == "max":
            found = values.max()
        else:
            layer, number = head[1:].split("H")
            found = values.xs((int(layer), int(number)), level=("layer", "head")).iloc[0]
        rows.append({"model": model, "what": what, "head": head, "known": stated, "found": found, "texts": texts})
    if not rows:
        return ""
    more = ""
    if (out / "copies.csv").exists():
        loss = pd.read_csv(out / "copies.csv").iloc[0]
        more = (
            f"\n\nSmolLM2's loss on two copies of {int(loss['period'])} random tokens: {loss['first_copy']:.1f} nats "
            f"on the first and {loss['second_copy']:.1f} on the second (known: 14.0 and 2.9)."
        )
    return (
        "## Heads that were known before\n\nMean attention, as far as possible on texts of the kind that the known "
        "figures are from: the first 400 sentences of UD English EWT dev for the encoders.\n\n"
        f"{_table(pd.DataFrame(rows))}{more}"
    )


def _sinks(out: Path) -> str:
    if not (out / "sinks.csv").exists():
        return ""
    sinks = pd.read_csv(out / "sinks.csv")
    rows = []
    for given, own in sinks.groupby("input", sort=False):
        layers = own.groupby("layer")["first_mass"].mean()
        rows.append(
            {
                "input": given,
                "sink metric": float(own["sink_share"].mean()),
                "layers 0, 1, 11": " ".join(f"{layers[layer]:.2f}" for layer in (0, 1, 11)),
                "layers 3 to 9": f"{layers[3:10].min():.2f} to {layers[3:10].max():.2f}",
                "layers 12 to 29": f"{layers[12:30].min():.2f} to {layers[12:30].max():.2f}",
            }
        )
    return (
        "## Sinks of SmolLM2\n\nGu et al.'s metric (share of heads and texts with more than .3 on the first of 64 "
        "tokens) and the mean mass on it by layer. Known: .73 on text and 0 on one repeated token; on text .04 to .05 "
        "in layers 0, 1 and 11, about .3 in layers 3 to 9, .37 to .79 from 12 on; on random tokens .65 to .8 in layers "
        f"3 to 9.\n\n{_table(pd.DataFrame(rows))}"
    )


def _syntax(out: Path) -> str:
    if not (out / "syntax.csv").exists():
        return ""
    syntax = pd.read_csv(out / "syntax.csv")
    said = []
    for model, rows in syntax.groupby("model", sort=False):
        interval = [f"{low:.3f} to {high:.3f}" for low, high in zip(rows["low"], rows["high"], strict=True)]
        columns = {
            "relation": "relation",
            "direction": "direction",
            "head": "head",
            "score": "score",
            "interval": "interval",
            "null": "best offset",
            "n": "n",
            "q": "q",
            "random_weights_score": "random weights",
            "with_label": "label",
        }
        shown = rows.assign(interval=interval)[list(columns)].rename(columns=columns)
        none = [relation for relation, own in rows.groupby("relation", sort=False) if not own["with_label"].any()]
        verdict = (
            f"For {', '.join(none)} none beats the baseline by 10 points on both halves, in either direction."
            if none
            else "Every relation has a head that beats the baseline by 10 points in some direction."
        )
        said.append(f"**{model}.** {verdict}\n\n{_table(shown)}")
    return (
        "## Syntactic heads\n\nUD English EWT dev: the head is the best one on sentences with even numbers, "
        "everything else is from the odd ones. The baseline is the best fixed offset, learned on the even ones; q is "
        "adjusted over all heads (Benjamini-Hochberg); the label asks for 10 points above the baseline on both "
        "halves.\n\n" + "\n\n".join(said)
    )


def _distances(out: Path) -> str:
    if not (out / "distances.csv").exists():
        return ""
    found = pd.read_csv(out / "distances.csv")
    drawn = found[(found["weights"] == "random") & (found["texts"] == "text") & (found["p"] < 0.05)]
    models = ", ".join(f"{row.model} ({row.kind})" for row in drawn.itertuples())
    untrained = f"With random weights layers hold together on text in: {models or 'none'}."
    return (
        "## Heads of one layer are alike, on random tokens too\n\nMean Jensen-Shannon divergence (nats) of two heads "
        "of the same layer and of different layers; p of 2,000 permutations of heads over layers. What holds on random "
        f"tokens as well is no evidence of linguistic functions. {untrained}\n\n{_table(found)}"
    )


def _no_op(out: Path) -> str:
    if not (out / "no_op.csv").exists():
        return ""
    rows = pd.read_csv(out / "no_op.csv")
    draw_no_op(rows, out)
    said = []
    for model, keys in (("tagger", "separator"), ("smollm2", "sink")):
        own = rows[(rows["model"] == model) & (rows["keys"] == keys)]
        if own.empty:
            continue
        carry = own[own["carries_label"].astype(str) == "True"]
        rank = own[["weight_share", "norm_share"]].corr("spearman").iloc[0, 1]
        said.append(
            {
                "model": model,
                "keys": keys,
                "heads with label": len(carry),
                "weight share": carry["weight_share"].mean(),
                "norm-weighted share": carry["norm_share"].mean(),
                "share of gradient": carry["gradient_share"].mean(),
                "share of keys": carry["key_share"].mean(),
                "rank correlation, all heads": rank,
            }
        )
    return (
        "## Much attention, little contribution\n\nHeads that carry the label: how much of their attention goes to the "
        "keys, how much of the summed lengths of weighted values (Kobayashi et al. 2020), and how much of the absolute "
        "gradient of the loss with respect to the weights (Clark et al. 2019), beside the share of visible keys. The "
        "loss of the tagger is -ln p of the tags that it gives itself. By head, class and layer: `no_op.csv`.\n\n"
        f"{_table(pd.DataFrame(said))}\n\n![Weight, contribution and gradient by layer](no_op.png)"
    )


@figures.style.styled
def draw_no_op(rows: pd.DataFrame, out: Path) -> None:
    """Left: share of weights and of contributions by layer; right: gradient per key relative to all keys."""
    models = [model for model in ("tagger", "smollm2") if model in set(rows["model"])]
    figure = figures.style.new_figure(figures.style.TWO_COLUMNS, 2.4 * len(models))
    axes = figure.subplots(len(models), 2, squeeze=False)
    for (left, right), model in zip(axes, models, strict=True):
        for place, (keys, own) in enumerate(rows[rows["model"] == model].groupby("keys", sort=False)):
            colour = figures.style.COLOURS[place]
            means = own.groupby("layer")[["weight_share", "norm_share"]].mean()
            left.plot(means.index, means["weight_share"], color=colour, label=f"{keys}: weights")
            left.plot(means.index, means["norm_share"], "--", color=colour, label=f"{keys}: contributions")
            ratio = (own["gradient_share"] / own["key_share"]).groupby(own["layer"]).median()
            right.plot(ratio.index, ratio, color=colour, label=keys)
        right.axhline(1, color=figures.style.GREY, linewidth=0.6)
        right.set_yscale("log")
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        left.set_title(f"{model}: share by layer (mean of heads)")
        right.set_title(f"{model}: gradient per key, 1 = mean of all keys")
        for axis in (left, right):
            axis.set_xlabel("layer")
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    figures.save_figure(figure, out / "no_op", ["png"])
