"""Every built-in task follows the contract of tasks; options are checked by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headlab.tasks import TASKS, task
from headlab.testing import check_task

SENTIMENT = "sentence\tlabel\n" + "".join(f"w{i} w{i + 7} w{i + 3}\t{('sad', 'glad')[i % 2]}\n" for i in range(16))


@pytest.fixture
def made(llama: Any, classifier: Any, encoder: Any, tmp_path: Path, words: Any) -> Any:
    """A task of any name over a tiny model."""

    def make(name: str) -> Any:
        path = tmp_path / "data.tsv"
        path.write_text(SENTIMENT)
        if name == "lm":
            (tmp_path / "text.txt").write_text(words(120, 1))
            return task("lm", llama, data=tmp_path / "text.txt", max_length=12)
        if name == "minimal-pairs":
            return task("minimal-pairs", llama, limit=8)
        return task(name, {"classification": classifier, "probe": encoder}[name], data=path)

    return make


@pytest.mark.parametrize("name", sorted(set(TASKS.built_in()) - {"translation"}))
def test_built_in_tasks_follow_the_contract(name: str, made: Any) -> None:
    check_task(made(name))


def test_a_class_is_made_for_a_model(llama: Any) -> None:
    check_task(TASKS.load("minimal-pairs"), llama)
