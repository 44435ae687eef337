"""Two small tables of a run with every hard value: missing numbers and labels, words read as missing, infinity."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headlab.runs.tables import HEAD_INDEX, SWEEP_COLUMNS


def heads_table() -> pd.DataFrame:
    index = pd.MultiIndex.from_tuples(
        [("encoder", 0, 0), ("encoder", 0, 1), ("decoder", 0, 0), ("cross", 1, 3)], names=HEAD_INDEX
    )
    return pd.DataFrame(
        {
            "kv_group": [0, 1, 0, 3],
            "entropy": [0.1, np.nan, 1 / 3, 4e-12],
            "sink": pd.array([True, None, False, True], dtype="boolean"),
            "sink_score": [0.9, np.nan, 0.2, 0.8],
            "separator": pd.array([None] * 4, dtype="boolean"),
            "separator_score": [np.nan] * 4,
            "positional_offset": pd.array([-1, None, 2, 0], dtype="Int64"),
            "broad": pd.array([False] * 4, dtype="boolean"),
            "broad_score": [0.1, 0.2, 0.3, 0.4],
            "labels": ["sink", "none", "NA", "null"],  # words that csv readers like to take for missing
        },
        index=index,
    )


def sweep_table() -> pd.DataFrame:
    rows = [
        ("gradient", "zero", None, "encoder", "0.1", 1, 4, "accuracy", 0.8, 0.9, 0.1, 0.0, 0.2, 20, "report", 0.5),
        (
            "random",
            "zero",
            7,
            "encoder",
            "0.1",
            1,
            4,
            "perplexity",
            np.inf,
            9.0,
            np.inf,
            np.nan,
            np.inf,
            20,
            "report",
            1,
        ),
    ]
    return pd.DataFrame(rows, columns=list(SWEEP_COLUMNS)).astype({"seed": "Int64"})
