"""The command line says today what it said when record.py was last run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.golden.record import COMMANDS, FOLDER, tables


@pytest.mark.demo
@pytest.mark.parametrize("name", COMMANDS)
def test_tables_are_those_recorded(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = tables(name, tmp_path)
    assert {f"{file}.csv" for file in found} == {path.name for path in FOLDER.glob(f"{name}*.csv")}
    for file, table in found.items():
        recorded = pd.read_csv(FOLDER / f"{file}.csv")
        pd.testing.assert_frame_equal(table, recorded, rtol=1e-6, atol=1e-7, check_dtype=False, obj=file)


def test_the_recorded_tables_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.csv")) < 300_000
