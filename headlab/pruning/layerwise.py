"""Michel's two tables: every head alone, and every layer reduced to its best head chosen on other examples.

Masks within one layer are measured by replay (headlab.attention.change.replay) where the model allows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from headlab.attention.change.replay import replay_of
from headlab.base.errors import DataError, unknown_name
from headlab.base.masks import LayerKey
from headlab.metrics import metric
from headlab.pruning.significance import adjusted, paired_bootstrap, paired_p
from headlab.scores import require_one_model
from headlab.tasks.running.batches import batch_name

if TYPE_CHECKING:
    from headlab.attention.heads import Heads
    from headlab.base.progress import Progress
    from headlab.models.texts.batch import Batch
    from headlab.tasks import Task

ALPHA = 0.05
Journal = MutableMapping[str, list]
Masks = Mapping[LayerKey, np.ndarray]  # (masks, heads of the layer) by (kind, layer); True = kept


def single_heads(
    heads: Heads,
    task: Task,
    *,
    ablation: str = "zero",
    split: str = "report",
    seed: int = 0,
    kinds: Iterable[str] | None = None,
    journal: Journal | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """What removing each head alone does to each metric: a row per head and metric (Michel et al. 2019, table 1).

    Columns: kind, layer, head, metric, value, baseline, drop (> 0 is worse), ci_low, ci_high (95 %, paired bootstrap),
    p (two-sided, see `paired_p`), q (Benjamini-Hochberg over the heads), significant (q < .05), n_examples.
    `kinds` leaves the heads of other kinds out. Raises DataError with the number needed where there are too few
    examples for so many tests, and UsageError for a kind that the model lacks.
    """
    sizes = _of_kinds(heads, kinds)
    require_enough(len(task.split(split)), sum(sizes.values()))
    masks = {key: ~np.eye(n, dtype=bool) for key, n in sizes.items()}
    whole, under = evaluate_layers(
        heads, task, masks, split=split, ablation=ablation, seed=seed, journal=journal, progress=progress
    )
    order = [(key, head) for key, n in sizes.items() for head in range(n)]
    table = compared(task, whole, [under[key][head] for key, head in order], seed)
    places = pd.DataFrame([(*key, head) for key, head in order], columns=["kind", "layer", "head"])
    return _beside(places, table)


def one_head_per_layer(
    heads: Heads,
    task: Task,
    *,
    ablation: str = "zero",
    choose: str = "select",
    judge: str = "report",
    seed: int = 0,
    kinds: Iterable[str] | None = None,
    journal: Journal | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """What is left when a layer keeps its best head alone: a row per layer, metric and way to choose (tables 2 and 5).

    `chosen_on` is the split on which the head has the lowest mean loss: `choose`, or `judge` itself beside it, which
    shows how much a choice on the judged examples flatters. `head` is the head that stays. The other columns are those
    of single_heads; q is over the layers of one choice.
    """
    sizes = _of_kinds(heads, kinds)
    require_enough(len(task.split(judge)), len(sizes))
    masks = {key: np.eye(n, dtype=bool) for key, n in sizes.items()}
    common: dict[str, Any] = {"ablation": ablation, "seed": seed, "journal": journal, "progress": progress}
    _, first = evaluate_layers(heads, task, masks, split=choose, **common)
    whole, second = evaluate_layers(heads, task, masks, split=judge, **common)
    parts = []
    for name, seen in ((choose, first), (judge, second)):
        best = {key: _best(tables) for key, tables in seen.items()}
        table = compared(task, whole, [second[key][head] for key, head in best.items()], seed)
        places = pd.DataFrame([(*key, head) for key, head in best.items()], columns=["kind", "layer", "head"])
        parts.append(_beside(places.assign(chosen_on=name), table))
    return pd.concat(parts, ignore_index=True)


def _of_kinds(heads: Heads, kinds: Iterable[str] | None) -> dict[LayerKey, int]:
    """Heads per (kind, layer) of these kinds, of all kinds where None."""
    present = {kind for kind, _ in heads.heads_per_layer}
    wanted = present if kinds is None else {kinds} if isinstance(kinds, str) else set(kinds)
    for kind in sorted(wanted - present):
        raise unknown_name("kind of attention", kind, present)
    return {key: n for key, n in heads.heads_per_layer.items() if key[0] in wanted}


def _best(tables: Sequence[pd.DataFrame]) -> int:
    """The mask with the lowest mean loss; a loss that is no number is no candidate."""
    losses = [float(table["loss"].mean()) for table in tables]
    return int(np.nanargmin(losses)) if np.isfinite(losses).any() else 0


def require_enough(n_examples: int, n_tests: int) -> None:
    """Raise DataError where even examples that all agree could not pass so many tests.

    A sign test of n examples has p = 2 ** (1 - n) at best; the smallest of m tests must pass .05 / m.
    """
    needed = math.ceil(1 + math.log2(n_tests / ALPHA))
    if n_examples < needed:
        raise DataError(
            f"{n_examples} examples are too few for {n_tests} tests; at least {needed} are needed.",
            "Give more data, a higher limit, or a larger report split.",
        )


def compared(task: Task, whole: pd.DataFrame, masked: Sequence[pd.DataFrame], seed: int) -> pd.DataFrame:
    """Drops with intervals, p and q of masked runs, indexed by (mask, metric)."""
    metrics = [metric(name) for name in task.metrics]
    table = paired_bootstrap(whole, masked, metrics, seed=seed)
    table["p"] = np.nan
    for measured in metrics:
        rows = [(place, measured.name) for place in range(len(masked))]
        table.loc[rows, "p"] = [paired_p(whole, one, measured) for one in masked]
        table.loc[rows, "q"] = adjusted(table.loc[rows, "p"].to_numpy())
    table["significant"] = table["q"] < ALPHA
    return table.assign(n_examples=len(whole))


def _beside(places: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `table` with the heads that they are of."""
    flat = table.reset_index()
    return pd.concat([places.iloc[flat["mask"]].reset_index(drop=True), flat.drop(columns="mask")], axis=1)


def evaluate_layers(
    heads: Heads,
    task: Task,
    masks: Masks,
    *,
    split: str,
    ablation: str = "zero",
    seed: int = 0,
    journal: Journal | None = None,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, dict[LayerKey, list[pd.DataFrame]]]:
    """Per-example statistics of the whole model, and by (kind, layer) under each of that layer's masks.

    What `journal` holds is not computed again; each layer of each batch goes there when it is done.
    """
    require_one_model(heads, task)
    known: Journal = {} if journal is None else journal
    means = heads.replacements(ablation, task.batches("select"), seed=seed)
    batches = list(task.batches(split))
    ids: list[int] = []
    parts: dict[LayerKey | None, list[np.ndarray]] = {key: [] for key in (None, *masks)}
    columns: list[str] = []
    for number, batch in enumerate(batches):
        record = _Recorder(heads, task, batch, ablation, means)
        name = batch_name(batch)
        if f"{name} whole" not in known:
            complete = record.taken.complete
            known[f"{name} whole"] = [record.columns, complete.tolist()]
        columns, whole = known[f"{name} whole"]
        parts[None].append(np.array(whole, dtype=float)[None])
        ids += batch.example_ids
        for done, (key, keep) in enumerate(masks.items()):
            label = f"{name} {key[0]} {key[1]} {np.packbits(keep).tobytes().hex()}"
            if label not in known:
                known[label] = record.under(key, keep).tolist()
            parts[key].append(np.array(known[label], dtype=float))
            if progress:
                progress(number * len(masks) + done + 1, len(batches) * len(masks), "masks within single layers")
    tables = {key: _tables(np.concatenate(found, axis=1), ids, columns) for key, found in parts.items()}
    return tables.pop(None)[0], tables  # type: ignore[return-value]


def _tables(values: np.ndarray, ids: list[int], columns: list[str]) -> list[pd.DataFrame]:
    """One table per mask from (masks, examples, columns)."""
    index = pd.Index(ids, name="example")
    return [pd.DataFrame(rows, index=index, columns=columns).sort_index() for rows in values]


class _Recorder:
    """Records a batch when something of it is asked for, and not before."""

    def __init__(self, heads: Heads, task: Task, batch: Batch, ablation: str, means: Any) -> None:
        self.heads, self.task, self.batch = heads, task, batch
        self.ablation, self.means = ablation, means
        self.columns: list[str] = []

    @cached_property
    def taken(self) -> Any:
        return replay_of(self.heads.subject).record(self.batch, self._statistics, self.ablation, self.means)

    def under(self, key: LayerKey, keep: np.ndarray) -> np.ndarray:
        """Statistics under masks of one layer, (masks, examples, columns)."""
        site = next(site for site in self.heads.sites if site.key == key)
        return self.taken.under_masks(site, torch.from_numpy(keep))

    def _statistics(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """(examples, columns)"""
        found = self.task.statistics(model, batch)
        self.columns = list(found)
        return torch.stack([column.detach().double() for column in found.values()], dim=1)
