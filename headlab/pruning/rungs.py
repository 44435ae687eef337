"""One rung of a ladder of learned gates: trained, judged with hard gates, and kept in two files of the run folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headlab.base.json_text import to_json
from headlab.metrics import metric
from headlab.pruning.evaluated import evaluated
from headlab.runs.evaluations import FOLDER, MaskedEvaluation, evaluation_key, read_evaluation
from headlab.runs.files import write_atomically
from headlab.scores.gates.gates import Gates
from headlab.scores.gates.settings import Training
from headlab.scores.gates.training import trained_gates
from headlab.tasks.running.batches import batching

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.base.progress import Progress
    from headlab.tasks import Task


@dataclass(frozen=True)
class Rung:
    """One training of gates and its judgement; arrays are (heads,)."""

    method: str
    level: float  # the penalty, or the number of heads that stay
    seed: int
    weights: np.ndarray  # log alpha, or the learned weight; NaN for heads without a gate
    keep: np.ndarray
    train_loss: float  # mean over the last tenth of the steps, gates drawn
    soft: dict[str, float]  # metrics with the gates at rest, which may lie between 0 and 1
    judged: MaskedEvaluation

    @property
    def n_open(self) -> int:
        return int(self.keep[~np.isnan(self.weights)].sum())


def climb(
    heads: Heads,
    task: Task,
    family: type[Gates],
    level: float,
    free: np.ndarray,
    how: Training,
    split: str,
    folder: str | Path | None,
    progress: Progress | None,
) -> Rung:
    """Train gates at one level and judge them; read instead where the folder holds the finished rung."""
    signature = task.signature()
    facts = {
        "method": family.name,
        "level": level,
        "training": asdict(how),
        "free": free.tolist(),
        "split": split,
        "batching": batching(task, how.split),
        "signature": json.loads(to_json(signature)),
    }
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    path = None if folder is None else Path(folder) / FOLDER / f"{name}.json"
    found = None if path is None else _read_rung(path)
    if found is not None:
        return found
    with trained_gates(heads, task, family(int(free.sum()), level), how, progress, free) as learned:
        mask = learned.mask(heads)
        # Without training of weights the mask says it all, and rungs that end at the same one share an evaluation.
        own = {"rung": name} if how.train == "all" else {}
        key = evaluation_key(mask, "zero", split, {**signature, **own})
        judged = evaluated(task, key, split, folder, lambda: heads.masked(mask))
        with heads.gate_context(learned.resting(heads)):
            examples = task.evaluate(split).examples
        soft = {name: metric(name).of({c: examples[c].to_numpy() for c in examples}) for name in task.metrics}
    last = learned.losses[-max(1, len(learned.losses) // 10) :]
    loss = float(np.nanmean(last)) if np.isfinite(last).any() else float("nan")
    rung = Rung(family.name, level, how.seed, learned.weights, learned.keep, loss, soft, judged)
    if path is not None:
        own = {name: value for name, value in vars(rung).items() if name != "judged"}
        write_atomically(path, to_json({**own, "run": judged.key}))
    return rung


def _read_rung(path: Path) -> Rung | None:
    """A finished rung, None where there is none or where one of its two files is missing or damaged."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        judged = read_evaluation(path.parent.parent, facts.pop("run"))
        if judged is None:
            return None
        facts["weights"], facts["keep"] = np.array(facts["weights"], dtype=float), np.array(facts["keep"], dtype=bool)
        return Rung(**facts, judged=judged)
    except (OSError, ValueError, KeyError, TypeError):
        return None
