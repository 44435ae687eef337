"""What a task measured under one mask, kept in a file of its own so that a killed sweep loses one mask at most."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from headlab.base.json_text import to_json
from headlab.base.masks import HeadMask
from headlab.runs.files import write_atomically

FOLDER = "rows"
_NOTE = b"headlab"


@dataclass(frozen=True)
class MaskedEvaluation:
    """A task under one mask: `examples` has a row per example and the statistics of metrics as columns."""

    key: str
    examples: pd.DataFrame
    seconds: float


def evaluation_key(mask: HeadMask, ablation: str, split: str, signature: Mapping[str, Any]) -> str:
    """A name for one evaluation, 16 hexadecimal digits: equal where mask, ablation, split and signature are.

    The signature is the task's (model, data, seed ...), so that no other model's numbers are ever taken for these.
    """
    sizes = [[kind, layer, size] for (kind, layer), size in mask.heads_per_layer.items()]
    facts = {
        "heads": sizes,
        "removed": [list(head) for head in mask.removed],
        "ablation": ablation if mask.removed else "none",  # nothing is replaced under the full mask
        "split": split,
        "signature": json.loads(to_json(signature)),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def write_evaluation(folder: str | Path, evaluation: MaskedEvaluation) -> Path:
    """Write `rows/<key>.parquet` of a run folder, whole or not at all; raises UsageError where that is impossible."""
    table = pa.Table.from_pandas(evaluation.examples.rename_axis("example").reset_index(), preserve_index=False)
    note = json.dumps({"key": evaluation.key, "seconds": evaluation.seconds, "n_examples": len(evaluation.examples)})
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _NOTE: note.encode()})
    return write_atomically(_path(folder, evaluation.key), lambda path: pq.write_table(table, path))


def read_evaluation(folder: str | Path, key: str) -> MaskedEvaluation | None:
    """The finished evaluation of that key, or None where there is none or its file is damaged."""
    try:
        table = pq.read_table(_path(folder, key))
        note = json.loads((table.schema.metadata or {})[_NOTE])
        examples = table.to_pandas().set_index("example")
        whole = note["key"] == key and note["n_examples"] == len(examples)
        return MaskedEvaluation(key, examples, float(note["seconds"])) if whole else None
    except (OSError, ValueError, KeyError, pa.ArrowException):  # missing, cut short, or not written by headlab
        return None


def examples_table(evaluations: Iterable[MaskedEvaluation]) -> pd.DataFrame:
    """The `examples` table: key (column `run`), example id and the statistics, a row per evaluation and example."""
    parts = []
    for evaluation in evaluations:
        part = evaluation.examples.rename_axis("example").reset_index()
        part.insert(0, "run", evaluation.key)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _path(folder: str | Path, key: str) -> Path:
    return Path(folder) / FOLDER / f"{key}.parquet"
