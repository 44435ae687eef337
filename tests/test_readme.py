"""The README's numbers are those of the committed results, and its files and commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", README, re.DOTALL)
    assert found is not None
    return found.group(1).strip()


def test_the_coverage_table_is_the_one_that_the_script_wrote() -> None:
    matrix = (ROOT / "results/coverage/matrix.md").read_text(encoding="utf-8").strip()
    assert block("coverage") == matrix.split("\n\n")[0]


def test_the_costs_of_looking_are_those_measured() -> None:
    table = pd.read_csv(ROOT / "results/bench_capture/bench_capture.csv")
    rows = [line for line in block("bench_capture").splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(table)
    for line, (_, row) in zip(rows, table.iterrows(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[:2] == [f"{row.tokens:,}", row.way]
        assert float(cells[2]) == row.times_sdpa and float(cells[3]) == row.peak_mb_above_sdpa


def test_the_costs_of_pruning_are_those_measured() -> None:
    table = pd.read_csv(ROOT / "results/prune_sst2/summary.csv")
    rows = [line for line in block("which-heads").splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(table)
    for line, (_, row) in zip(rows, table.iterrows(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0].split()[0] == row.strategy and float(cells[1].split()[0]) == round(row.mean_drop, 3)
        assert float(cells[2]) == round(row.drop_at_half, 3)


def test_pictures_and_files_named_in_the_readme_exist() -> None:
    named = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README) + re.findall(r"`((?:results|scripts)/[\w./-]+\.\w+)`", README)
    assert named and [path for path in named if not (ROOT / path).is_file()] == []


def test_python_names_used_in_the_readme_exist() -> None:
    import headlab

    used = set(re.findall(r"\bheadlab\.([a-z_A-Z]+)\b", README))
    packages = {path.name for path in (ROOT / "headlab").iterdir() if (path / "__init__.py").is_file()}
    assert {"Heads", "task", "sweep"} <= used
    assert sorted(used - packages - set(headlab.__all__)) == []
