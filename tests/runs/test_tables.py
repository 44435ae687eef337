"""Tables survive both formats, and say what they lack."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from headlab.base.errors import DataError, UsageError
from headlab.base.masks import head_names
from headlab.runs import tables
from headlab.runs.tables import HEAD_INDEX
from tests.support.run_tables import heads_table, sweep_table


@pytest.mark.parametrize("format", tables.FORMATS)
def test_heads_survive_with_their_index_and_nullable_labels(tmp_path: Path, format: str) -> None:
    table = heads_table()
    path = tables.save_table(table, tmp_path, "heads", format)
    assert path == tmp_path / f"heads.{format}"
    pd.testing.assert_frame_equal(tables.load_table(tmp_path, "heads"), table, check_exact=True)


@pytest.mark.parametrize("format", tables.FORMATS)
def test_sweep_survives_with_text_budgets_missing_seeds_and_infinity(tmp_path: Path, format: str) -> None:
    table = sweep_table()
    tables.save_table(table, tmp_path, "sweep", format)
    loaded = tables.load_table(tmp_path, "sweep")
    pd.testing.assert_frame_equal(loaded, table, check_exact=True)
    assert loaded["budget"].tolist() == ["0.1", "0.1"]


@pytest.mark.parametrize("format", tables.FORMATS)
def test_examples_survive(tmp_path: Path, format: str) -> None:
    table = pd.DataFrame({"run": ["0123", "0123"], "example": [0, 5], "correct": [1.0, 0.0]})
    tables.save_table(table, tmp_path, "examples", format)
    pd.testing.assert_frame_equal(tables.load_table(tmp_path, "examples"), table)


def test_the_other_format_is_not_left_behind(tmp_path: Path) -> None:
    tables.save_table(heads_table(), tmp_path, "heads", "csv")
    tables.save_table(heads_table().iloc[:1], tmp_path, "heads", "parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["heads.parquet"]
    assert len(tables.load_table(tmp_path, "heads")) == 1


def test_saving_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    table = heads_table()
    table.attrs["notes"] = {"unwritable": object()}
    tables.save_table(table, tmp_path, "heads")
    assert set(table.attrs) == {"notes"}
    assert list(table.index.names) == list(HEAD_INDEX)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks the columns ci_low, ci_high\..*It has strategy"):
        tables.save_table(sweep_table().drop(columns=["ci_low", "ci_high"]), tmp_path, "sweep")
    pd.DataFrame({"kind": ["encoder"], "layer": [0]}).to_csv(tmp_path / "heads.csv", index=False)
    with pytest.raises(DataError, match="lacks the column head"):
        tables.load_table(tmp_path, "heads")


def test_missing_damaged_and_unknown_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no heads table.*heads\.parquet"):
        tables.load_table(tmp_path, "heads")
    (tmp_path / "heads.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read"):
        tables.load_table(tmp_path, "heads")
    (tmp_path / "sweep.csv").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be read"):
        tables.load_table(tmp_path, "sweep")
    with pytest.raises(UsageError, match="Did you mean 'heads'"):
        tables.load_table(tmp_path, "head")
    with pytest.raises(UsageError, match="Unknown format"):
        tables.save_table(heads_table(), tmp_path, "heads", "xlsx")


def test_head_names_say_the_stack_where_there_are_several() -> None:
    assert head_names(heads_table().index) == ["E0H0", "E0H1", "D0H0", "X1H3"]
    assert head_names([("decoder", 2, 5)]) == ["L2H5"]
    assert head_names([("cross", 2, 5)], single_stack=False) == ["X2H5"]
    assert head_names([("cross", 2, 5)]) == ["X2H5"], "cross-attention is never all that a model has"


def test_label_and_score_columns() -> None:
    table = heads_table().assign(score_gradient=1.0)
    assert tables.label_columns(table) == ["sink", "separator", "broad"]
    assert tables.score_columns(table) == ["score_gradient"]
