"""What pages say of plugins comes from the plugins themselves, or from the run folder where the plugin is not there."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headlab.commands.plugins import facts_of_own
from headlab.labels import LABELS
from headlab.metrics import METRICS, Metric
from headlab.report.facts import bounds, define, lower_is_better, told_by
from headlab.report.figures.labels import legend_keys
from headlab.report.page.page import write_report
from headlab.runs.folder import save
from headlab.runs.stored_run import find_runs
from tests.support.made_up_runs import make_heads

MINE = replace(
    LABELS.load("broad"), name="mine", title="all over", text="Looks all over.", letter="W", colour="#ABCDEF"
)
ERRORS = Metric(
    name="errors",
    title="errors",
    text="Share of wrong answers.",
    columns=("correct", "examples"),
    value=lambda sums: 1 - sums["correct"] / sums["examples"],
    higher_is_better=False,
    unit="share",
    bounds=(0.0, 1.0),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder that was written where the label `mine` and the metric `errors` were known."""
    heads = make_heads({"encoder": (2, 4)})
    own = heads.filter(regex="^broad").rename(columns=lambda name: name.replace("broad", "mine"))
    heads = heads.join(own)
    LABELS.add(MINE)
    METRICS.add(ERRORS)
    try:
        save(tmp_path, heads=heads, meta={"model": "made up"}, notes=facts_of_own([*heads.columns, "errors"]))
    finally:
        LABELS.discard("mine")
        METRICS.discard("errors")
    return tmp_path


def test_a_run_folder_tells_what_plugins_say_that_are_not_there(folder: Path) -> None:
    assert define("mine").title == "mine" and bounds("errors") is None and not lower_is_better("errors")
    runs = find_runs([folder])
    assert set(runs[0].facts) == {"mine", "errors"}
    with told_by(runs):
        assert define("mine")[:3] == ("all over", "", "Looks all over.")
        assert define("mine_low").title == "all over: 95 % low"
        assert define("errors")[:3] == ("errors", "share", "Share of wrong answers; lower is better.")
        assert bounds("errors") == (0.0, 1.0) and lower_is_better("errors")
        assert legend_keys(["broad", "mine"])["mine"] == ("W", "#ABCDEF")
    assert define("mine").title == "mine"
    page = write_report(folder).read_text(encoding="utf-8")
    assert "all over" in page and "#ABCDEF" in page


def test_a_label_with_the_letter_of_another_gets_one_of_its_own() -> None:
    LABELS.add(replace(MINE, letter="B"))
    try:
        keys = legend_keys(["broad", "mine"])
    finally:
        LABELS.discard("mine")
    assert keys["broad"][0] == "B" and keys["mine"][0] != "B" and keys["mine"][1] != keys["broad"][1]


def test_metrics_and_columns_say_which_way_is_better() -> None:
    assert define("accuracy").text == "Share of examples answered correctly; higher is better."
    assert define("perplexity").text.endswith("lower is better.") and lower_is_better("perplexity")
    assert bounds("bleu") == (0.0, 100.0) and not lower_is_better("bleu")
    assert define("length_ratio").text.endswith("best at 1.") and not lower_is_better("length_ratio")
    assert define("entropy_words").title == "entropy, words" and define("entropy").axis == "entropy (nats)"
    assert define("score_gradient:per-token").title == "gradient score (per-token)"
    assert define("score_of_mine").title == "of mine score"
    assert define("syntactic:det:dependent-head_q").title == "det, dependent to head: q value"
    assert define("accuracy_drop").title == "drop of accuracy without the head"


def test_a_report_loads_no_torch(folder: Path) -> None:
    code = (
        "import sys; from headlab.commands.report import ReportRequest, run\n"
        f"run(ReportRequest(folders=[{str(folder)!r}], figures=['png']))\n"
        "assert not {'torch', 'transformers', 'IPython'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
