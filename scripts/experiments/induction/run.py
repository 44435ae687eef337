"""A decoder that grows an induction head: labels and losses over training, and what its circuit is worth.

A Llama of two layers with four heads learns to continue sequences, half of which are repeated chunks of random tokens
(period 6 to 30 of 64); the other half has no pattern. Every few steps headlab labels all heads on texts of its own
(two copies of 32 random tokens, a period that training has not seen), and the loss on the first and the second copy of
held-out sequences is taken. Then the circuit (the strongest previous-token head of layer 0 and the strongest induction
head of layer 1, chosen on these texts) is removed, and so is every other head and pair of heads, on other sequences. A
model of one layer, trained alike, is the control: one layer cannot do it.

    python -m scripts.experiments.induction.run [--steps 1600] [--every 50] [--seeds 1] [--out results/induction]

The tables of each model are kept in `--runs`, so that a run that was stopped goes on with the next model.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from scipy.stats import bootstrap
from torch.nn.functional import cross_entropy
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

from headlab import Batch, HeadMask, Heads, Tokens
from headlab.base.errors import DataError
from headlab.base.json_text import to_json
from headlab.report import figures
from headlab.runs.files import write_atomically
from headlab.runs.meta import read_meta, write_meta

TOKENS, VOCABULARY, BATCH, HELD_OUT = 64, 512, 32, 128
PERIODS = (6, 30)
PERIOD = TOKENS // 2  # of the held-out sequences: longer than any in training
RATE, WARM_UP = 1e-3, 50
LABELS = ("previous_token", "induction", "duplicate_token")
COLUMNS = [f"{label}{suffix}" for label in LABELS for suffix in ("", "_score", "_threshold", "_null")]


def sequences(draw: np.random.Generator, count: int, *, repeated: float, period: int | None = None) -> torch.Tensor:
    """(count, 64) token ids; a share of the rows repeats a random chunk, of `period` or any of the training's."""
    rows = draw.integers(VOCABULARY, size=(count, TOKENS))
    for row in rows[: round(repeated * count)]:
        length = period or int(draw.integers(PERIODS[0], PERIODS[1] + 1))
        row[:] = np.resize(draw.choice(VOCABULARY, length, replace=False), TOKENS)
    return torch.from_numpy(rows)


def new_model(layers: int, seed: int) -> LlamaForCausalLM:
    """The untrained model."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=512,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=TOKENS,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def losses(model: LlamaForCausalLM, ids: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean loss in nats of each sequence on its first copy, and on its second without the token that begins it."""
    with torch.no_grad():
        logits = model(ids).logits[:, :-1]
    each = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1).numpy()
    return each[:, : PERIOD - 1].mean(1), each[:, PERIOD:].mean(1)


def plain_batch(ids: torch.Tensor) -> Batch:
    """Sequences without special tokens, as headlab takes them."""
    real, none = torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids, dtype=torch.bool)
    inputs = {"input_ids": ids, "attention_mask": real.long()}
    return Batch(inputs, Tokens(ids, real, none, none), examples=tuple(range(len(ids))))


def train(layers: int, seed: int, steps: int, every: int) -> tuple[LlamaForCausalLM, pd.DataFrame, pd.DataFrame]:
    """The trained model, its head tables with a column `step`, and its losses by step."""
    draw, held_out = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    repeated = sequences(held_out, HELD_OUT, repeated=1, period=PERIOD)
    texts = plain_batch(sequences(held_out, 32, repeated=0))
    model = new_model(layers, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    tables, rows = [], []
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            model.eval()
            table = Heads(model).observe([texts], labels=LABELS, seed=seed)[COLUMNS].reset_index()
            tables.append(table.assign(model=f"{layers}-layer", seed=seed, step=step))
            first, second = losses(model, repeated)
            rows.append(
                {
                    "model": f"{layers}-layer",
                    "seed": seed,
                    "step": step,
                    "first_copy": float(first.mean()),
                    "second_copy": float(second.mean()),
                }
            )
            print(rows[-1], table.filter(like="_score").max().round(3).to_dict(), flush=True)
            model.train()
        ids = sequences(draw, BATCH, repeated=0.5)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM_UP)
        optimizer.zero_grad()
        logits = model(ids).logits[:, :-1]
        cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
    return model.eval(), pd.concat(tables), pd.DataFrame(rows)


class Patterns:
    """Attention weights of each layer, taken in one pass and put back in others: a head that is then removed changes
    what moves along the other heads' patterns, but not the patterns (Olsson et al. 2022, pattern-preserving ablation).
    """

    def __init__(self) -> None:
        self.kept: dict[int, torch.Tensor] = {}
        self.replaying = False

    def __call__(self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any):
        """Causal attention of equally many heads on both sides, without padding, as transformers calls it."""
        if not self.replaying:
            scores = query @ key.transpose(-1, -2) * module.scaling
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            self.kept[module.layer_idx] = scores.masked_fill(later, float("-inf")).softmax(-1)
        return (self.kept[module.layer_idx] @ value).transpose(1, 2).contiguous(), None

    @contextlib.contextmanager
    def of(self, model: LlamaForCausalLM, ids: torch.Tensor) -> Iterator[None]:
        """Inside, the model attends as it does now on these sequences."""
        before = model.config._attn_implementation
        AttentionInterface.register("kept_patterns", self)
        model.set_attn_implementation("kept_patterns")
        try:
            self.replaying = False
            losses(model, ids)
            self.replaying = True
            yield
        finally:
            model.set_attn_implementation(before)


def circuit_of(table: pd.DataFrame) -> tuple[Any, Any]:
    """The strongest previous-token head of layer 0 and the strongest induction head of layer 1."""
    last = table[table["step"] == table["step"].max()].set_index(["kind", "layer", "head"])
    by_layer = [last.xs(layer, level="layer", drop_level=False) for layer in (0, 1)]
    return by_layer[0]["previous_token_score"].idxmax(), by_layer[1]["induction_score"].idxmax()


def ablate(model: LlamaForCausalLM, table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """What removing each head and each pair of heads costs on both copies of sequences that nothing was chosen on."""
    heads, circuit = Heads(model), circuit_of(table)
    ids = sequences(np.random.default_rng([seed, 3]), HELD_OUT, repeated=1, period=PERIOD)
    base = losses(model, ids)
    sets = [*itertools.combinations(heads.index, 1), *itertools.combinations(heads.index, 2)]
    rows = []
    for ablation in ("zero", "pattern-preserving"):
        with contextlib.nullcontext() if ablation == "zero" else Patterns().of(model, ids):
            for removed in sets:
                with heads.masked(HeadMask.removing(removed, like=heads)):
                    found = losses(model, ids)
                names = [f"L{layer}H{head}" for _, layer, head in removed]
                rows.append(
                    {
                        "seed": seed,
                        "ablation": ablation,
                        "removed": " ".join(names),
                        "n_removed": len(removed),
                        "of_circuit": len(set(removed) & set(circuit)),
                        **_drops(base, found),
                    }
                )
    return pd.DataFrame(rows)


def _drops(base: tuple[np.ndarray, np.ndarray], found: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Rise of the loss on each copy, with the 95 % paired bootstrap interval over sequences of the second's."""
    drop = found[1] - base[1]
    interval = bootstrap((drop,), np.mean, n_resamples=1000, method="percentile", rng=0).confidence_interval
    return {
        "first_copy_drop": (found[0] - base[0]).mean(),
        "second_copy_baseline": base[1].mean(),
        "second_copy_drop": drop.mean(),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "n_examples": len(drop),
    }


def summarise(tables: pd.DataFrame, curves: pd.DataFrame, ablations: pd.DataFrame) -> pd.DataFrame:
    """One row for each model and seed: when induction came, how strong it is, and what removing the circuit costs."""
    rows = []
    for (model, seed), own in curves.groupby(["model", "seed"]):
        heads = tables[(tables["model"] == model) & (tables["seed"] == seed)]
        best = heads.groupby("step")["induction_score"].max()
        falls = own["second_copy"].diff()
        row: dict[str, Any] = {"model": model, "seed": seed, "steps": own["step"].max()}
        row["step_of_induction"] = next((step for step in best.index if best[step] > 0.3), None)
        row["step_of_steepest_fall"] = int(own.loc[falls.idxmin(), "step"])
        last = heads[heads["step"] == own["step"].max()]
        row |= {f"best_{name}_score": last[f"{name}_score"].max() for name in LABELS}
        row |= own.iloc[-1][["first_copy", "second_copy"]].to_dict()
        for ablation in ("zero", "pattern-preserving") if model == "2-layer" else ():
            pairs = ablations.query("seed == @seed and ablation == @ablation and n_removed == 2")
            others = pairs.loc[pairs["of_circuit"] == 0, "second_copy_drop"]
            row[f"{ablation}_circuit"] = pairs.loc[pairs["of_circuit"] == 2, "second_copy_drop"].item()
            row[f"{ablation}_other_pairs_mean"], row[f"{ablation}_other_pairs_max"] = others.mean(), others.max()
        rows.append(row)
    return pd.DataFrame(rows)


@figures.style.styled
def draw_training(tables: pd.DataFrame, curves: pd.DataFrame, out: Path) -> None:
    """Loss on both copies, and the induction and previous-token scores of all heads, of the first seed."""
    figure = figures.style.new_figure(figures.style.TWO_COLUMNS, 4.6)
    axes = figure.subplots(2, 2, sharex=True)
    axes[0, 1].sharey(axes[0, 0])
    seed = curves["seed"].min()
    for axis, model in zip(axes[0], ("2-layer", "1-layer"), strict=True):
        for each, own in curves[curves["model"] == model].groupby("seed"):
            for column, colour in (("first_copy", "#8A8A8A"), ("second_copy", "#D55E00")):
                axis.plot(
                    own["step"],
                    own[column],
                    color=colour,
                    linewidth=1.2 if each == seed else 0.6,
                    label=column.replace("_", " ") if each == seed else None,
                )
        axis.set_title(f"{model.replace('-layer', '')} layer{'s' * (model[0] != '1')}: loss, {PERIOD} tokens twice")
        axis.set_ylabel("nats per token")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    own = tables[(tables["model"] == "2-layer") & (tables["seed"] == seed)]
    by_step = {int(step): rows.set_index(["kind", "layer", "head"]) for step, rows in own.groupby("step")}
    for axis, column in zip(axes[1], ("induction_score", "previous_token_score"), strict=True):
        figures.heads_over_training(by_step, column, ax=axis)
        axis.set_title(f"2 layers, seed {seed}: {column.removesuffix('_score').replace('_', ' ')}")
    figures.save_figure(figure, out / "training", ["png"])


@figures.style.styled
def draw_ablation(ablations: pd.DataFrame, out: Path) -> None:
    """Rise of the loss on the second copy for every pair of heads, by how many of them are of the circuit."""
    figure = figures.style.new_figure(figures.style.ONE_COLUMN, 2.6)
    axis = figure.subplots()
    pairs = ablations[ablations["n_removed"] == 2]
    spread = np.random.default_rng(0)
    for place, (ablation, colour) in enumerate((("zero", "#0072B2"), ("pattern-preserving", "#D55E00"))):
        own = pairs[pairs["ablation"] == ablation]
        x = own["of_circuit"] + 0.3 * place - 0.15 + spread.uniform(-0.07, 0.07, len(own))
        axis.scatter(x, own["second_copy_drop"], s=9, color=colour, alpha=0.6, linewidths=0, label=ablation)
    axis.set_xticks([0, 1, 2], ["none", "one", "both"])
    axis.set_xlabel("heads of the circuit among the two removed")
    axis.set_ylabel("rise of loss on the second copy")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figures.save_figure(figure, out / "ablation", ["png"])


def main() -> None:
    """Train, look, remove, and keep what was found; no result is written before all of it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--every", type=int, default=50, help="steps between two looks at the heads")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/induction"), help="where trained models' tables are kept"
    )
    parser.add_argument("--out", type=Path, default=Path("results/induction"))
    options = parser.parse_args()
    models = itertools.product((2, 1), range(options.seeds))
    found = [trained(layers, seed, options) for layers, seed in models]
    keep(options, *(pd.concat(tables) for tables in zip(*found, strict=True)))


def trained(layers: int, seed: int, options: argparse.Namespace) -> list[pd.DataFrame]:
    """Head tables, losses and ablations of one model: of an earlier run where there is one, else made now."""
    folder, names = options.runs / f"{layers}-layer-{seed}", ("heads_over_training", "loss_over_training", "ablation")
    signature = json.loads(to_json(settings(options) | {"layers": layers, "seed": seed}))
    with contextlib.suppress(DataError):
        if read_meta(folder)["signature"] == signature:
            return [pd.read_csv(folder / f"{name}.csv") for name in names]
    model, table, curve = train(layers, seed, options.steps, options.every)
    columns = ["seed", "ablation", "removed", "n_removed"]
    ablation = ablate(model, table, seed) if layers == 2 else pd.DataFrame(columns=columns)
    write_meta(folder, {})  # older tables may lie there
    for name, rows in zip(names, (table, curve, ablation), strict=True):
        write_atomically(folder / f"{name}.csv", rows.to_csv(index=False))
    write_meta(folder, signature)  # last: only what is whole is taken up again
    return [pd.read_csv(folder / f"{name}.csv") for name in names]


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """What decides the numbers of one model, beside its layers and its seed."""
    return {
        "model": "LlamaForCausalLM of 4 heads a layer, width 128",
        "tokens": TOKENS,
        "vocabulary": VOCABULARY,
        "periods": PERIODS,
        "held_out_period": PERIOD,
        "n_examples": HELD_OUT,
        "batch": BATCH,
        "rate": RATE,
        "steps": options.steps,
        "every": options.every,
        "labels": LABELS,
        "dtype": "float32",
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }


def keep(options: argparse.Namespace, tables: pd.DataFrame, curves: pd.DataFrame, ablations: pd.DataFrame) -> None:
    """Write tables and pictures, and meta.json last."""
    found = {
        "heads_over_training": tables,
        "loss_over_training": curves,
        "ablation": ablations,
        "summary": summarise(tables, curves, ablations),
    }
    with tempfile.TemporaryDirectory() as folder:  # pictures first: what cannot be drawn leaves no half of a result
        draw_training(tables, curves, Path(folder))
        draw_ablation(ablations, Path(folder))
        for picture in Path(folder).glob("*.png"):
            write_atomically(options.out / picture.name, picture.read_bytes())
    for name, table in found.items():
        first = [column for column in ("model", "seed", "step") if column in table]
        ordered = table[first + [column for column in table if column not in first]]
        write_atomically(options.out / f"{name}.csv", ordered.round(4).to_csv(index=False))
    signature = settings(options) | {"layers": [2, 1], "seeds": list(range(options.seeds))}
    command = f"python -m scripts.experiments.induction.run --steps {options.steps} --every {options.every}"
    write_meta(options.out, signature, command=f"{command} --seeds {options.seeds}")
    print(found["summary"].round(3).T.to_string())


if __name__ == "__main__":
    main()
