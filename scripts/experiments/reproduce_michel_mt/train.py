"""Train a small translation model of Marian's kind on two files of parallel lines; it resumes where it was stopped.

3 encoder and 3 decoder layers, width 128, 8 heads, one vocabulary of 4,000 pieces for both languages. The folder is one
that save_pretrained wrote, so that `headlab sweep FOLDER --task translation` opens it. Everything is lower-cased by the
tokenizer, as BLEU on Multi30k often is (compare with `--lowercase`).

    python -m scripts.experiments.reproduce_michel_mt.train --out FOLDER   # English to German, Multi30k of HEADLAB_DATA
    python -m scripts.experiments.reproduce_michel_mt.train --out FOLDER --source train.en --target train.de \\
        --test-source test.en --test-target test.de
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn import functional
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta
from scripts.experiments.shared.folders import public_data

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
LONGEST = 60  # tokens of a training sentence
POOL = 40  # batches among which sentences are sorted by length


@dataclass(frozen=True)
class Settings:
    """What the model and its training depend on."""

    vocabulary: int = 4000
    width: int = 128
    inner: int = 512
    layers: int = 3
    heads: int = 8
    steps: int = 2000
    batch: int = 64  # sentence pairs
    rate: float = 2.5e-3  # Adam's, at its peak
    warmup: int = 300  # steps
    dropout: float = 0.1
    smoothing: float = 0.1
    seed: int = 0


def lines(path: Path) -> list[str]:
    """The lines of a text file, .gz too, blank ones included."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    return text.removesuffix("\n").split("\n")


def make_tokenizer(texts: list[str], size: int) -> PreTrainedTokenizerFast:
    """A lower-casing unigram vocabulary, as SentencePiece makes it, which puts the end token behind a text."""
    core = Tokenizer(models.Unigram())
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=[PAD, END, UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    core.train_from_iterator(texts, trainer)
    core.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 1)])
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token=PAD, eos_token=END, unk_token=UNKNOWN)


def make_model(settings: Settings, tokenizer: PreTrainedTokenizerFast) -> MarianMTModel:
    """The untrained model."""
    torch.manual_seed(settings.seed)
    stacks = {"layers": settings.layers, "attention_heads": settings.heads, "ffn_dim": settings.inner}
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=settings.width,
        max_position_embeddings=256,
        scale_embedding=True,
        activation_function="relu",
        dropout=settings.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=1,
        bos_token_id=None,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in stacks.items()},
    )
    return MarianMTModel(config)


def batches(lengths: np.ndarray, settings: Settings, first: int) -> Iterator[np.ndarray]:
    """Places of the sentences of step `first` and the steps after it; the same whenever training is resumed."""
    per_epoch = len(lengths) // settings.batch
    for epoch in range(first // per_epoch, settings.steps // per_epoch + 1):
        rng = np.random.default_rng([settings.seed, epoch])
        order = rng.permutation(len(lengths))[: per_epoch * settings.batch]
        pools = np.array_split(order, max(1, per_epoch // POOL))
        order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
        turn = rng.permutation(per_epoch)
        for place in turn[first % per_epoch if epoch == first // per_epoch else 0 :]:
            yield order[place * settings.batch : (place + 1) * settings.batch]


def padded(rows: list[list[int]], fill: int) -> Tensor:
    """Rows as one tensor (row, token)."""
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def loss_of(model: MarianMTModel, source: list[list[int]], target: list[list[int]], smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy a target token, nats."""
    ids, labels = padded(source, 0), padded(target, -100)
    start = model.prepare_decoder_input_ids_from_labels(labels=labels)
    logits = model(input_ids=ids, attention_mask=(ids != 0).long(), decoder_input_ids=start, use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)


def rate(step: int, settings: Settings) -> float:
    """The learning rate: up to its peak, then down to 0 in a straight line."""
    warmup = min(settings.warmup, settings.steps // 2)
    return settings.rate * min((step + 1) / (warmup + 1), (settings.steps - step) / (settings.steps - warmup))


def stopped(folder: Path, signature: dict[str, Any]) -> bool:
    """Whether a training of this signature was begun in the folder."""
    notes = folder / "training.json"
    return notes.is_file() and json.loads(notes.read_text())["signature"] == signature


class Training:
    """Model, optimiser and log of a folder; `save` and the next start read and write `training.*` in it."""

    def __init__(self, folder: Path, model: MarianMTModel, settings: Settings, signature: dict[str, Any]) -> None:
        self.folder, self.model, self.settings, self.signature = folder, model, settings, signature
        self.trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]  # sinusoids are not
        self.optimiser = torch.optim.Adam([p for _, p in self.trained], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        self.step, self.seconds = 0, 0.0
        self.log: list[dict[str, float]] = []
        self._state = folder / "training.safetensors"
        if self._state.is_file() and stopped(folder, signature):
            self._resume()

    def _resume(self) -> None:
        notes, state = json.loads((self.folder / "training.json").read_text()), load_file(self._state)
        self.step, self.seconds, self.log = notes["step"], notes["seconds"], notes["log"]
        for name, parameter in self.trained:
            parameter.data.copy_(state[f"weight.{name}"])
            self.optimiser.state[parameter] = {
                "step": torch.tensor(float(self.step)),
                **{key: state[f"{key}.{name}"] for key in ("exp_avg", "exp_avg_sq")},
            }
        print(f"resumed after step {self.step}", file=sys.stderr)

    def save(self) -> None:
        state = {f"weight.{name}": p.detach() for name, p in self.trained}
        for name, parameter in self.trained:
            for key in ("exp_avg", "exp_avg_sq"):
                state[f"{key}.{name}"] = self.optimiser.state[parameter][key]
        write_atomically(self._state, lambda path: save_file(state, path))
        notes = {"signature": self.signature, "step": self.step, "seconds": self.seconds, "log": self.log}
        write_atomically(self.folder / "training.json", json.dumps(notes))

    def run(self, source: list[list[int]], target: list[list[int]], valid: tuple[list, list], every: int) -> None:
        """Train to the last step; says where it is, and saves, every so many steps."""
        settings, spent = self.settings, time.process_time()
        lengths = np.array([len(a) * 1000 + len(b) for a, b in zip(source, target, strict=True)])
        total = 0.0
        for places in batches(lengths, settings, self.step):
            if self.step >= settings.steps:
                break
            torch.manual_seed(settings.seed * 1_000_003 + self.step)  # dropout, the same after a stop
            self.model.train()
            for group in self.optimiser.param_groups:
                group["lr"] = rate(self.step, settings)
            loss = loss_of(self.model, [source[i] for i in places], [target[i] for i in places], settings.smoothing)
            self.optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimiser.step()
            self.step, total = self.step + 1, total + loss.item()
            if self.step % every == 0 or self.step == settings.steps:
                self.seconds += time.process_time() - spent
                row = {
                    "step": self.step,
                    "cpu_seconds": round(self.seconds, 1),
                    "loss": total / every,
                    "valid_nll": validation(self.model, *valid),
                }
                self.log.append(row)
                total = 0.0
                self.save()
                print(
                    " ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()),
                    file=sys.stderr,
                    flush=True,
                )
                spent = time.process_time()  # validation is not training


@torch.no_grad()
def validation(model: MarianMTModel, source: list[list[int]], target: list[list[int]]) -> float:
    """Mean cross-entropy a token over the validation pairs, nats."""
    model.eval()
    total = count = 0.0
    for start in range(0, len(source), 100):
        rows = target[start : start + 100]
        n_tokens = sum(map(len, rows))
        total += loss_of(model, source[start : start + 100], rows).item() * n_tokens
        count += n_tokens
    return total / count


@torch.no_grad()
def greedy(model: MarianMTModel, tokenizer: Any, texts: list[str], size: int = 100) -> list[str]:
    """Translations by greedy decoding, in the order of the texts."""
    model.eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = [""] * len(texts)
    for start in range(0, len(order), size):
        places = order[start : start + size]
        given = tokenizer([texts[i] for i in places], padding=True, return_tensors="pt", return_token_type_ids=False)
        made = model.generate(**given, num_beams=1, do_sample=False, max_new_tokens=100)
        for place, text in zip(places, tokenizer.batch_decode(made, skip_special_tokens=True), strict=True):
            found[place] = text.strip()
    return found


def bleu(translations: list[str], references: list[str]) -> tuple[float, str]:
    """Lower-cased BLEU and its signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(lowercase=True)
    return metric.corpus_score(translations, [references]).score, str(metric.get_signature())


def arguments() -> argparse.Namespace:
    """The command line; without files, Multi30k in the folder HEADLAB_DATA."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the model")
    for side in ("source", "target"):
        parser.add_argument(f"--{side}", type=Path, help="training lines")
        parser.add_argument(f"--valid-{side}", type=Path, help="validation lines")
        parser.add_argument(f"--test-{side}", type=Path, help="lines to translate at the end")
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--every", type=int, default=100, help="steps between two reports")
    parser.add_argument("--results", type=Path, help="folder for the table of the training and its meta.json")
    given = parser.parse_args()
    if given.source is None or given.target is None:
        folder = public_data("multi30k", otherwise="give --source and --target") / "multi30k"
        for part, name in (("", "train"), ("valid_", "val"), ("test_", "test_2016_flickr")):
            for side, language in (("source", "en"), ("target", "de")):
                setattr(given, part + side, folder / f"{name}.{language}.gz")
    return given


def main() -> None:
    """Train, save, and say how well the test lines are translated."""
    given = arguments()
    settings = Settings(steps=given.steps, seed=given.seed)
    names = ["source", "target", "valid_source", "valid_target", "test_source", "test_target"]
    texts = {name: lines(getattr(given, name)) if getattr(given, name) else [] for name in names}
    for side in ("", "valid_", "test_"):
        if len(texts[f"{side}source"]) != len(texts[f"{side}target"]):
            sys.exit(f"The files {side}source and {side}target differ in length.")
    hashes = {n: hashlib.sha256("\n".join(t).encode()).hexdigest()[:16] for n, t in texts.items() if t}
    signature = {**asdict(settings), "data": hashes, "torch": torch.__version__}
    given.out.mkdir(parents=True, exist_ok=True)
    if stopped(given.out, signature):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(given.out)
    else:
        tokenizer = make_tokenizer(texts["source"] + texts["target"], settings.vocabulary)
        tokenizer.save_pretrained(given.out)
    encoded = {name: tokenizer(texts[name])["input_ids"] if texts[name] else [] for name in names[:4]}
    kept = [i for i in range(len(encoded["source"])) if max(len(encoded[n][i]) for n in names[:2]) <= LONGEST]
    source, target = ([encoded[name][i] for i in kept] for name in names[:2])
    valid = (encoded["valid_source"] or source[:500], encoded["valid_target"] or target[:500])
    training = Training(given.out, make_model(settings, tokenizer), settings, signature)
    training.run(source, target, valid, given.every)
    model = training.model.eval()
    model.save_pretrained(given.out)
    report = {"steps": training.step, "cpu_seconds": round(training.seconds, 1), "parameters": model.num_parameters()}
    if texts["test_source"]:
        found = greedy(model, tokenizer, texts["test_source"])
        write_atomically(given.out / "test.translations", "\n".join(found) + "\n")
        report["bleu"], report["sacrebleu"] = bleu(found, texts["test_target"])
    print(json.dumps(report))
    if given.results:
        table = pd.DataFrame(training.log)
        write_atomically(given.results / "train_marian.csv", table.to_csv(index=False))
        write_meta(
            given.results,
            {**signature, "files": [getattr(given, n).name for n in names if getattr(given, n)]},
            command="python -m scripts.experiments.reproduce_michel_mt.train",
            notes=report,
        )


if __name__ == "__main__":
    main()
