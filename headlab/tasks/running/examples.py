"""One item of a task: the rows that a model reads of it, and what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass

from headlab.models.texts.rows import Row


@dataclass(frozen=True)
class Example:
    """One example: its id (place in the data), its rows, the group it is stratified by, its label's id."""

    id: int
    rows: tuple[Row, ...]
    group: str = ""
    label: int = -1

    @property
    def size(self) -> tuple[int, int]:
        """Number of rows, and of tokens in the longest."""
        return len(self.rows), max(map(len, self.rows))
