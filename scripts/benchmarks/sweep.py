"""What leaving out every head costs: whole passes, headlab's replay, screen and race, and TransformerLens' hooks.

Every way measures the rise of the loss without each head alone (all 72 of MiniLM, all 270 of SmolLM2) on the same
examples; exact ways must agree to 1e-5. The two exact ways take turns, layer by layer, in one process, and CPU time on
one thread is counted, so that ratios hold whatever else the machine does; over several rounds the ratio is the median,
with its range. TransformerLens is run on SmolLM2's weights, on the heads of three layers, where it is installed
(--with-transformer-lens installs it into --environment).

    python -m scripts.benchmarks.sweep [--models demo:minilm,demo:smollm2] [--rounds N] [--out results/bench_sweep]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import headlab
from headlab.attention.change.replay import replay_of
from headlab.runs.files import write_atomically
from headlab.runs.meta import write_meta
from headlab.scores import standard_errors
from headlab.scores.measures.searches import FEWEST

TOP = 20
# The task, its options (half of the examples are scored), and how often every way is run.
WHAT: dict[str, tuple[str, dict[str, Any], int]] = {
    "demo:minilm": ("probe", {"limit": 512}, 3),
    "demo:smollm2": ("minimal-pairs", {"limit": 96, "batch_size": 32}, 1),
}


class Clock:
    """CPU seconds of several ways that take turns."""

    def __init__(self) -> None:
        self.seconds: dict[Any, float] = {}

    @contextlib.contextmanager
    def of(self, *ways: Any) -> Iterator[None]:
        """Count what is inside for each of these names."""
        begun = time.process_time()
        yield
        spent = time.process_time() - begun
        for way in ways:
            self.seconds[way] = self.seconds.get(way, 0.0) + spent


def exactly(heads: Any, task: Any, clock: Clock) -> dict[str, np.ndarray]:
    """The rise of the mean loss without each head, (heads,), by whole masked passes and by replay, in turns."""

    def mean_loss() -> float:
        with torch.no_grad():
            losses = [task.losses(heads.model, batch).double() for batch in task.batches("select")]
        return float(torch.cat(losses).mean())

    with clock.of("naive"):
        complete = mean_loss()
    with clock.of("replay"):
        taken = [replay_of(heads.subject).record(batch, task.losses) for batch in task.batches("select")]
    found: dict[str, list[float]] = {"naive": [], "replay": []}
    for (kind, layer), n in heads.heads_per_layer.items():
        own = [(kind, layer, head) for head in range(n)]
        with clock.of("naive", ("naive", layer)):
            for head in own:
                with heads.masked(headlab.HeadMask.removing([head], like=heads)):
                    found["naive"].append(mean_loss() - complete)
        with clock.of("replay"):
            rises = np.concatenate([one.without(own) - one.complete for one in taken], axis=1)
            found["replay"] += rises.mean(axis=1).tolist()
    return {way: np.array(rises) for way, rises in found.items()}


def searches(heads: Any, task: Any) -> dict[str, Callable[[], Any]]:
    """The ways to find the most important heads alone; a race needs a certain number of examples."""
    found = {
        "screen": lambda: headlab.score("ablation:screen", heads, task, wanted=TOP),
        "race": lambda: headlab.score("ablation:race", heads, task, wanted=TOP),
    }
    return found if len(task.split("select")) >= FEWEST else {way: found[way] for way in found if way != "race"}


def measure(name: str, rounds: int | None, limit: int | None) -> tuple[list[dict[str, Any]], np.ndarray, Clock]:
    """Rows of the table for one model, the naive rises, and the clock of the last round."""
    kind, options, often = WHAT[name]
    task = headlab.task(kind, model=name, **(options | ({"limit": limit} if limit else {})))
    heads = headlab.Heads(task.model)
    begun = time.process_time()
    replay_of(heads.subject)  # tried out once for each model; its cost is a row of its own
    trial = time.process_time() - begun
    runs = searches(heads, task)
    seconds: dict[str, list[float]] = {way: [] for way in ("naive", "replay", *runs)}
    found: dict[str, Any] = {}
    for _ in range(rounds or often):
        clock = Clock()
        found |= exactly(heads, task, clock)
        for way, run in runs.items():
            with clock.of(way):
                found[way] = run()
        for way, spent in seconds.items():
            spent.append(clock.seconds[way])
        print(name, {way: round(spent[-1], 1) for way, spent in seconds.items()}, file=sys.stderr, flush=True)
    exact = found["naive"]
    rows = [row(name, way, seconds, np.asarray(found[way]), exact, task) for way in seconds]
    for entry, way in zip(rows, seconds, strict=True):
        errors = standard_errors(found[way]) if way in ("screen", "race") else None
        entry["confirmed_heads"] = len(exact) if errors is None else int(errors.notna().sum())
        confirmed = slice(None) if errors is None else errors.notna().to_numpy()
        entry["largest_gap"] = float(np.abs(np.asarray(found[way])[confirmed] - exact[confirmed]).max())
    rows.append({"model": name, "way": "trying the replay out, once", "cpu_seconds": round(trial, 2)})
    return rows, exact, clock


def row(
    model: str, way: str, seconds: dict[str, list[float]], rises: np.ndarray, exact: np.ndarray, task: Any
) -> dict[str, Any]:
    """One line of the table."""
    ratios = [a / b for a, b in zip(seconds["naive"], seconds[way], strict=True)]
    top = set(np.argsort(-exact)[:TOP])
    return {
        "model": model,
        "way": way,
        "heads": len(exact),
        "examples": len(task.split("select")),
        "cpu_seconds": round(statistics.median(seconds[way]), 2),
        "times_faster": round(statistics.median(ratios), 2),
        "times_faster_low": round(min(ratios), 2),
        "times_faster_high": round(max(ratios), 2),
        f"of_top_{TOP}": len(top & set(np.argsort(-rises)[:TOP])),
        "rounds": len(ratios),
    }


LENS = """
import json, sys, time, torch
from transformer_lens.model_bridge import TransformerBridge
torch.set_num_threads(int(sys.argv[3])); torch.set_grad_enabled(False)
given = json.load(open(sys.argv[2])); rows = given["batches"]
bridge = TransformerBridge.boot_transformers(sys.argv[1], device="cpu", dtype=torch.float32)
H = bridge.cfg.n_heads
def mean_loss(hooks):
    total, n = 0.0, 0
    for batch in rows:
        ids, counted = torch.tensor(batch["ids"]), torch.tensor(batch["counted"])
        mask = torch.tensor(batch["valid"]).long()
        logits = bridge.run_with_hooks(ids, attention_mask=mask, fwd_hooks=hooks, return_type="logits")
        log = logits[:, :-1].float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0] * counted[:, 1:]
        margin = log.sum(1).view(-1, 2); total += float((margin[:, 1] - margin[:, 0]).sum()); n += len(margin)
    return total / n
def zero(head):
    def hook(z, hook):
        z = z.clone(); z[:, :, head] = 0.0
        return z
    return hook
whole = mean_loss([]); begun = time.process_time()
whole = mean_loss([])
rises = [mean_loss([(f"blocks.{l}.attn.hook_z", zero(h))]) - whole for l in given["layers"] for h in range(H)]
print(json.dumps({"seconds": time.process_time() - begun, "rises": rises}))
"""


LENS_LAYERS = (0, 10, 20)


def lens(name: str, environment: str, limit: int | None, exact: np.ndarray, clock: Clock) -> dict[str, Any]:
    """Heads of some layers zeroed through TransformerLens' hooks, on the same weights and pairs, by its own Python."""
    kind, options, _ = WHAT[name]
    task = headlab.task(kind, model=name, **(options | ({"limit": limit} if limit else {})))
    batches = [
        {"ids": b.source.ids.tolist(), "counted": b.extra["counted"].tolist(), "valid": b.source.valid.tolist()}
        for b in task.batches("select")
    ]
    with tempfile.TemporaryDirectory() as folder:
        task.model.model.save_pretrained(folder)
        task.model.tokenizer.save_pretrained(folder)
        data, script = Path(folder) / "pairs.json", Path(folder) / "lens.py"
        data.write_text(json.dumps({"batches": batches, "layers": LENS_LAYERS}))
        script.write_text(LENS)
        python = Path(environment) / "bin" / "python"
        command = [str(python), str(script), folder, str(data), str(torch.get_num_threads())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"model": name, "way": f"TransformerLens hooks: failed ({reason[:120]})"}
    found = json.loads(done.stdout.strip().splitlines()[-1])
    per_layer = len(found["rises"]) // len(LENS_LAYERS)
    same = np.concatenate([exact[layer * per_layer : (layer + 1) * per_layer] for layer in LENS_LAYERS])
    naive_seconds = sum(clock.seconds["naive", layer] for layer in LENS_LAYERS)
    return {
        "model": name,
        "way": "TransformerLens hooks",
        "heads": len(same),
        "cpu_seconds": round(found["seconds"], 2),
        "times_faster": round(naive_seconds / found["seconds"], 2),
        "rounds": 1,
        "largest_gap": float(np.abs(np.array(found["rises"]) - same).max()),
    }


def install_lens(environment: str) -> None:
    """An environment of its own, since TransformerLens pins other versions than headlab may have."""
    if not (Path(environment) / "bin" / "python").exists():
        venv.create(environment, with_pip=True)
    pip = [str(Path(environment) / "bin" / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "torch==2.13.0", "transformer-lens>=3"], check=True)


def main() -> None:
    """Measure, print the table and keep it with its signature."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(WHAT))
    parser.add_argument("--rounds", type=int, default=None, help="instead of each model's own")
    parser.add_argument("--limit", type=int, default=None, help="examples, for a trial")
    parser.add_argument("--with-transformer-lens", action="store_true")
    parser.add_argument("--environment", default="runs/transformer-lens")
    parser.add_argument("--out", default="results/bench_sweep")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.with_transformer_lens:
        install_lens(options.environment)
    rows: list[dict[str, Any]] = []
    described = {}
    for name in options.models.split(","):
        found, exact, clock = measure(name, options.rounds, options.limit)
        rows += found
        described[name] = {"task": WHAT[name][0], "examples": found[0]["examples"]}
        if name == "demo:smollm2" and (Path(options.environment) / "bin" / "python").exists():
            rows.append(lens(name, options.environment, options.limit, exact, clock))
    table = pd.DataFrame(rows)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "bench_sweep.csv", table.to_csv(index=False))
    signature = {
        "models": described,
        "threads": torch.get_num_threads(),
        "headlab": headlab.__version__,
        "torch": torch.__version__,
        "top": TOP,
    }
    write_meta(out, signature, command=f"python -m scripts.benchmarks.sweep --models {options.models}")
    print(table.to_string(index=False, na_rep="-"))


if __name__ == "__main__":
    main()
