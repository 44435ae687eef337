"""Run folders as a report reads them: one run, or a folder of runs such as the demo's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from headlab.base.errors import DataError
from headlab.runs.maps import AttentionMap, load_maps
from headlab.runs.meta import read_meta
from headlab.runs.tables import HEAD_INDEX, load_table, table_path

TABLES = ("heads", "sweep", "heads_over_training")
SINGLE = "single.csv"  # of headlab sweep --single
DEPTH = 2  # how far below a named folder runs are looked for


@dataclass(frozen=True)
class Run:
    """Everything that a run folder holds for the reader."""

    name: str
    folder: Path
    heads: pd.DataFrame | None = None
    sweep: pd.DataFrame | None = None
    training: pd.DataFrame | None = None  # head tables one below the other, with the `step` of each
    maps: list[AttentionMap] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def signature(self) -> dict[str, Any]:
        """What the numbers are of; empty where the run recorded nothing."""
        return self.meta.get("signature", {})

    @property
    def model(self) -> str:
        """The model's name, wherever the signature keeps it; "" where it does not."""
        return _model_name(self.signature)

    @property
    def n_rows(self) -> int:
        """How many masks a sweep has evaluated and kept for its resumption."""
        return sum(1 for _ in (self.folder / "rows").glob("*.parquet"))

    @property
    def n_texts(self) -> int | None:
        """How many texts the intervals of the labels are over: of a dump all, of a sweep those of the other half."""
        chunks = self.meta.get("notes", {}).get("chunks", self.signature.get("texts", {}).get("n_texts"))
        if isinstance(chunks, int):
            return chunks
        total = self.signature.get("n_examples")
        if not isinstance(total, int) or self.sweep is None or set(self.sweep["split"]) != {"report"}:
            return None
        return total - int(self.sweep["n_examples"].max())

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """What it says of labels, scores and metrics that did not come with headlab, by column."""
        return self.meta.get("notes", {}).get("facts", {})

    @property
    def step(self) -> int | None:
        """The training step of its checkpoint, where the signature has one under `step`."""
        return _step(self.signature)

    @property
    def title(self) -> str:
        """The model's name, with the folder's name where that says more."""
        return self.name if not self.model or self.name == self.model else f"{self.model} ({self.name})"


def _step(signature: dict[str, Any]) -> int | None:
    for key, value in signature.items():
        if key == "step" and isinstance(value, int):
            return value
        if isinstance(value, dict) and (found := _step(value)) is not None:
            return found
    return None


def _model_name(signature: dict[str, Any]) -> str:
    for key in ("checkpoint", "model"):
        value = signature.get(key)
        if isinstance(value, dict):
            value = value.get("name")
        if value:
            return str(value)
    nested = (item for item in signature.values() if isinstance(item, dict))
    return next((name for name in map(_model_name, nested) if name), "")


def find_runs(folders: Iterable[str | Path]) -> list[Run]:
    """Read every run in the folders or up to two levels below them, in the order given, then by name.

    Raises DataError where a folder is missing or holds no table of heads and no sweep.
    """
    places: dict[Path, str] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder}.", "Name a folder that headlab dump or headlab sweep wrote.")
        found = [path for path in _candidates(folder) if _has_tables(path)]
        if not found:
            if (folder / "one_head_per_layer.csv").is_file():
                raise DataError(
                    f"{folder} holds a table of layers with one head, which a report does not draw.",
                    "Leave it out, and open one_head_per_layer.csv itself.",
                )
            raise DataError(
                f"{folder} holds no tables of a run.", "Run headlab dump or headlab sweep with --out there first."
            )
        for path in found:
            places.setdefault(path.resolve(), _run_name(path, folder))
    return [read_run(path, name) for path, name in places.items()]


def _run_name(path: Path, folder: Path) -> str:
    return path.resolve().name if path == folder else path.relative_to(folder).as_posix()


def _candidates(folder: Path) -> list[Path]:
    below = [folder]
    for depth in range(1, DEPTH + 1):
        below += sorted(path for path in folder.glob("/".join("*" * depth)) if path.is_dir())
    return below


def _has_tables(folder: Path) -> bool:
    return any(table_path(folder, name) for name in TABLES) or (folder / SINGLE).is_file() or _is_in_progress(folder)


def _single_heads(folder: Path) -> pd.DataFrame | None:
    """What `headlab sweep --single` measured of each head alone, as a head table; None where there is no such file."""
    path = folder / SINGLE
    if not path.is_file():
        return None
    try:
        rows = pd.read_csv(path)
        wide = rows.pivot(index=HEAD_INDEX, columns="metric", values=["drop", "q"])
    except (ValueError, KeyError) as error:
        raise DataError(f"{path} is no table of single heads: {error}.", "Run headlab sweep --single again.") from error
    wide.columns = [f"{metric}_{name}" for name, metric in wide.columns]
    metrics = list(dict.fromkeys(rows["metric"]))
    return wide[[f"{metric}_{name}" for metric in metrics for name in ("drop", "q")]]


def _is_in_progress(folder: Path) -> bool:
    """A run that has begun and has no table yet; a damaged meta.json is no run."""
    try:
        return read_meta(folder).get("finished") is False
    except DataError:
        return False


def read_run(folder: Path, name: str) -> Run:
    """Read the tables, maps and signature of one folder; a missing meta.json leaves the signature empty."""
    tables = {key: load_table(folder, key) for key in TABLES if table_path(folder, key)}
    meta = read_meta(folder) if (folder / "meta.json").is_file() else {}
    heads, sweep, training = (tables.get(key) for key in TABLES)
    heads = _single_heads(folder) if heads is None else heads
    sweep = sweep if sweep is None else sweep.drop(columns="removed", errors="ignore")  # too wide for a page
    return Run(name, folder, heads, sweep, training, load_maps(folder), meta)
