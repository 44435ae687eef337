"""Figures of head tables, attention maps and sweeps, drawn without a display."""

from headlab.report.figures.attention import attention_grid
from headlab.report.figures.curve import pruning_curve
from headlab.report.figures.heat import heat_map
from headlab.report.figures.labels import label_map
from headlab.report.figures.style import ONE_COLUMN, TWO_COLUMNS, save_figure

__all__ = [
    "ONE_COLUMN",
    "TWO_COLUMNS",
    "attention_grid",
    "heat_map",
    "label_map",
    "pruning_curve",
    "save_figure",
]
