"""Fine-tune a text classifier for pruning experiments: MiniLM on SST-2, or any encoder on two files of text and label.

One epoch of batches of like length in a seeded order, AdamW, linear warm-up and decay. A killed run continues from
its last saved step and ends with the same weights. The result is a transformers folder (safetensors) for
`headlab sweep FOLDER --task classification`.

    python -m scripts.experiments.prune_sst2.finetune --out FOLDER [--model demo:minilm] [--train FILE --dev FILE]

Without --train and --dev, `sst2/train.tsv` and `sst2/dev.tsv` of the folder named in HEADLAB_DATA are used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForSequenceClassification

import headlab
from headlab.base.errors import HeadlabError, UsageError
from headlab.models import Checkpoint, open_model
from headlab.runs.files import write_atomically
from headlab.runs.folder import differences
from headlab.runs.meta import write_meta
from scripts.experiments.shared.folders import public_data

COMMAND = "python -m scripts.experiments.prune_sst2.finetune"
STATE = "training.safetensors"  # weights and optimizer of an unfinished run


def main() -> None:
    """Train, save, and say how good it is."""
    options = arguments()
    try:
        finetune(options)
    except HeadlabError as error:
        sys.exit(str(error))


def arguments() -> argparse.Namespace:
    """What the user asks for; files of HEADLAB_DATA where none are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo:minilm", help="hub id, folder or demo:NAME of an encoder")
    parser.add_argument("--train", help="file of texts and labels to learn from")
    parser.add_argument("--dev", help="file of texts and labels to judge on")
    parser.add_argument("--out", type=Path, required=True, help="folder for the classifier")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--max-length", type=int, default=128, help="tokens; longer texts are split")
    parser.add_argument("--limit", type=int, help="training texts, all without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    options = parser.parse_args()
    for name in ("train", "dev"):
        if getattr(options, name) is None:
            data = public_data(f"sst2/{name}.tsv", otherwise=f"name --{name} FILE")
            setattr(options, name, str(data / "sst2" / f"{name}.tsv"))
    return options


def finetune(options: argparse.Namespace) -> None:
    """Train from the last saved step on, save the classifier and remove what was only for resuming."""
    checkpoint = with_head(options.model, labels_of(options.train), options.seed)
    settings = {"max_length": options.max_length, "batch_size": options.batch_size, "seed": options.seed}
    task = headlab.task("classification", model=checkpoint, data=options.train, limit=options.limit, **settings)
    signature = {
        "script": "finetune_classifier",
        **task.signature(),
        "batch_size": options.batch_size,
        "epochs": options.epochs,
        "learning_rate": options.learning_rate,
    }
    if (options.out / "config.json").exists() and not (options.out / STATE).exists():
        raise UsageError(f"{options.out} already holds a classifier.", "Choose another --out, or remove it.")
    losses = train(checkpoint.model, task, options, signature)
    checkpoint.model.eval()
    dev = headlab.task("classification", model=checkpoint, data=options.dev, **settings)
    values = dev.evaluate("all").values
    checkpoint.model.save_pretrained(options.out)
    checkpoint.tokenizer.save_pretrained(options.out)
    notes = {"dev": {"data": dev.signature()["data"], "n": dev.n_examples, **values}, "losses": losses}
    write_meta(options.out, signature, command=" ".join([COMMAND, *sys.argv[1:]]), notes=notes)
    (options.out / STATE).unlink(missing_ok=True)
    print(f"{options.out}: dev accuracy {values['accuracy']:.4f}, loss {values['loss']:.4f} ({dev.n_examples} texts)")


def labels_of(path: str) -> list[str]:
    """The labels in a file, sorted, read the way the task reads them."""
    from headlab.tasks.running.labelled import read_labelled
    from headlab.tasks.running.options import Options

    return sorted(set(read_labelled(path, Options()).labels))


def with_head(name: str, labels: list[str], seed: int) -> Checkpoint:
    """The encoder of that name under a new classification head, whose weights depend on the seed alone."""
    encoder = open_model(name, purpose="features")
    config = encoder.model.config
    config.id2label, config.label2id = dict(enumerate(labels)), {label: i for i, label in enumerate(labels)}
    config.problem_type = "single_label_classification"
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config)
    model.base_model.load_state_dict(encoder.model.state_dict())
    encoder.model, encoder.purpose = model, "classification"
    return encoder


def train(model: nn.Module, task: Any, options: argparse.Namespace, signature: dict[str, Any]) -> list[float]:
    """The steps that are left; the loss of every step."""
    batches = list(task.batches("all"))
    steps = options.epochs * len(batches)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.01)
    losses = resume(model, optimizer, options.out, signature)
    model.train()
    begun, first = time.perf_counter(), len(losses)
    for step in range(first, steps):
        order = np.random.default_rng([options.seed, step // len(batches)]).permutation(len(batches))
        torch.manual_seed(options.seed * 1_000_003 + step)  # dropout depends on the step, not on where a run began
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * rate(step, steps)
        loss = task.losses(model, batches[order[step % len(batches)]]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        if (step + 1) % options.save_every == 0 or step + 1 == steps:
            save(model, optimizer, options.out, signature, losses)
            left = (time.perf_counter() - begun) / (step + 1 - first) * (steps - step - 1)
            recent = np.mean(losses[-options.save_every :])
            print(f"step {step + 1} of {steps}, loss {recent:.4f}, {left:.0f} s left", file=sys.stderr, flush=True)
    return losses


def rate(step: int, steps: int) -> float:
    """Share of the learning rate at a step: up over the first tenth, then down to 0."""
    warm = max(1, steps // 10)
    return (step + 1) / warm if step < warm else (steps - step) / (steps - warm)


def save(model: nn.Module, optimizer: torch.optim.Optimizer, out: Path, signature: dict, losses: list[float]) -> None:
    """Weights, optimizer and losses so far, whole or not at all: the losses are the record of how far it is."""
    tensors = {f"model.{name}": tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    for place, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{place}.{name}": tensor for name, tensor in state.items()}
    note = {"settings": json.dumps(signature, default=str), "losses": json.dumps(losses)}
    write_atomically(out / STATE, lambda path: save_file(tensors, path, metadata=note))


def resume(model: nn.Module, optimizer: torch.optim.Optimizer, out: Path, signature: dict) -> list[float]:
    """Put back what `save` left; the losses so far, none for a new run."""
    from safetensors import safe_open

    if not (out / STATE).exists():
        return []
    with safe_open(out / STATE, "pt") as file:
        note = file.metadata()
    differing = differences(signature, json.loads(note["settings"]))
    if differing:
        raise UsageError(
            f"{out} holds another training; it differs in {'; '.join(differing)}.", "Choose another --out."
        )
    tensors = load_file(out / STATE)
    model.load_state_dict({name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")})
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, place, key = name.split(".", 2)
            state.setdefault(int(place), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return json.loads(note["losses"])


if __name__ == "__main__":
    main()
