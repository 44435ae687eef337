"""Figures of head tables, attention maps and sweeps, drawn without a display."""

from headlab.report.figures.attention import attention_grid
from headlab.report.figures.by_layer import entropy_by_layer, mass_by_layer
from headlab.report.figures.clusters import cluster_map
from headlab.report.figures.costs import cost_bars
from headlab.report.figures.curve import pruning_curve
from headlab.report.figures.gates import gate_histogram
from headlab.report.figures.heat import heat_map
from headlab.report.figures.kinds import pruning_by_kind
from headlab.report.figures.labels import label_map
from headlab.report.figures.model_view import model_view
from headlab.report.figures.pareto import pareto
from headlab.report.figures.sinks import sink_map
from headlab.report.figures.style import ONE_COLUMN, TWO_COLUMNS, save_figure
from headlab.report.figures.training import heads_over_training

__all__ = [
    "ONE_COLUMN",
    "TWO_COLUMNS",
    "attention_grid",
    "cluster_map",
    "cost_bars",
    "entropy_by_layer",
    "gate_histogram",
    "heads_over_training",
    "heat_map",
    "label_map",
    "mass_by_layer",
    "model_view",
    "pareto",
    "pruning_by_kind",
    "pruning_curve",
    "save_figure",
    "sink_map",
]
