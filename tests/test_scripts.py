"""The shell scripts parse, can be executed, and share one set-up."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ("scripts/demo", "scripts/test", ".ci/run")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_parse_and_are_executable(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True)


def test_the_shared_set_up_parses_and_is_used_by_both_commands() -> None:
    subprocess.run(["bash", "-n", str(ROOT / "scripts/environment.sh")], check=True)
    for name in ("scripts/demo", "scripts/test"):
        assert 'source "$ROOT/scripts/environment.sh"' in (ROOT / name).read_text()


def test_ci_runs_the_slow_tests_too() -> None:
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("./scripts/test --slow")


def test_an_old_python_is_named_with_the_remedy(tmp_path: Path) -> None:
    for name in ("python3", "python3.13", "python3.12", "python3.11", "python"):
        old = tmp_path / name
        old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
        old.chmod(0o755)
    code = f'set -euo pipefail; ROOT="{tmp_path}"; source "{ROOT}/scripts/environment.sh"; make_venv'
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; python3 is Python 3.9.2" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_constraints_pin_what_the_project_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    names = {line.split("==")[0] for line in pinned}
    assert {"torch", "transformers"} <= names
    assert names <= {dependency.split(">")[0] for dependency in project["dependencies"]}
    assert project["requires-python"] == ">=3.11"
