"""The figures that commands leave beside their tables, each as PNG and SVG in DIR/figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from headlab.report.maps import AttentionMap

STATISTICS = ("entropy_norm", "prev_mass", "separator_mass", "first_mass")
MAX_GRIDS, MAX_HEADS = 4, 16


def of_heads(table: pd.DataFrame, folder: Path) -> list[Path]:
    """The label map, and heat maps of a few statistics and of every score."""
    from headlab.report.figures import heat_map, label_map
    from headlab.tables import label_columns, score_columns

    drawn: dict[str, Any] = {}
    if label_columns(table):
        drawn["labels"] = label_map(table)
    for column in [*STATISTICS, *score_columns(table)]:
        if column in table.columns and table[column].notna().any():
            drawn[column] = heat_map(table, column)
    return _save(drawn, folder)


def of_maps(maps: Sequence[AttentionMap], folder: Path) -> list[Path]:
    """One grid for each of the first few texts, with every head that was kept of it."""
    from headlab.report.figures import attention_grid

    texts = sorted({one.text for one in maps})[:MAX_GRIDS]
    return _save(
        {f"maps_{text}": attention_grid([m for m in maps if m.text == text][:MAX_HEADS]) for text in texts}, folder
    )


def of_sweep(table: pd.DataFrame, folder: Path) -> list[Path]:
    """One pruning curve for each metric."""
    from headlab.report.figures import pruning_curve

    return _save({f"curve_{metric}": pruning_curve(table, metric) for metric in table["metric"].unique()}, folder)


def _save(drawn: dict[str, Any], folder: Path) -> list[Path]:
    from headlab.report.figures import save_figure

    paths: list[Path] = []
    for name, figure in drawn.items():
        paths += save_figure(getattr(figure, "figure", figure), folder / "figures" / name.replace(":", "_"))
    return paths
