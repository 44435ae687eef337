"""The figures that commands leave beside their tables, each as PNG and SVG in DIR/figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from headlab.cli.maps import Maps

STATISTICS = ("entropy_norm", "prev_mass", "separator_mass", "first_mass")
MAX_GRIDS = 4


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


def of_maps(maps: Maps, folder: Path) -> list[Path]:
    """A grid of the first text's maps for each of the first few layers that were kept."""
    from headlab.report.figures import attention_grid

    drawn: dict[str, Any] = {}
    for kind, layer in list(maps.weights)[:MAX_GRIDS]:
        weights, queries, keys = maps.first_text(kind, layer)
        drawn[f"maps_{kind}_{layer}"] = attention_grid(weights.numpy(), queries if kind != "cross" else (queries, keys))
    return _save(drawn, folder)


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
