"""Tables as people read them in the results' README files."""

from __future__ import annotations

import pandas as pd


def markdown(table: pd.DataFrame) -> str:
    """A table with three digits; what is missing stays empty."""
    rows = [list(table.columns), ["---"] * table.shape[1]]
    rows += [[_short(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _short(value: object) -> str:
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.3g}"
    return str(value)
