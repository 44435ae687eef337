"""The command line before any model is opened: help, names, options, folders, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import headlab
from headlab.cli import run
from headlab.commands.list import entries

COMMANDS = ("inspect", "dump", "sweep", "report", "list", "demo")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([name, "-h"] for name in COMMANDS)])
def test_help_is_printed_on_stdout_and_exits_with_0(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    assert run(arguments) == 0
    printed = capsys.readouterr()
    assert "Usage: headlab" in printed.out
    assert not printed.err


def test_the_help_names_every_command_and_no_command_that_does_not_exist_yet(capsys: pytest.CaptureFixture) -> None:
    run(["--help"])
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in COMMANDS)
    assert "prune" not in printed


def test_shared_options_are_on_both_commands_that_make_runs(capsys: pytest.CaptureFixture) -> None:
    shared = [
        "--limit",
        "--batch-size",
        "--max-length",
        "--device",
        "--dtype",
        "--seed",
        "--format",
        "--overwrite",
        "--quiet",
        "--debug",
        "--data",
        "--text-column",
        "--label-column",
        "--train-data",
        "--json",
    ]
    for command in ("dump", "sweep"):
        run([command, "--help"])
        printed = capsys.readouterr().out
        assert [option for option in shared if option not in printed] == []


@pytest.mark.parametrize("arguments", [["--version"], ["dump", "--version"]])
def test_version(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    assert run(arguments) == 0
    assert capsys.readouterr().out.strip() == headlab.__version__


def test_python_m_headlab_is_the_same_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "headlab", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")


@pytest.mark.parametrize("topic", ["labels", "scores", "tasks", "metrics", "statistics", "models"])
def test_list_prints_one_line_for_each_name(topic: str, capsys: pytest.CaptureFixture) -> None:
    assert run(["list", topic]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert run(["list", topic, "--json"]) == 0
    named = json.loads(capsys.readouterr().out)[topic]
    assert [line.split()[0] for line in lines if not line.startswith("    ")] == list(named)
    assert all(facts["summary"] for facts in named.values()), "every name comes with a line about it"


def test_the_list_of_labels_has_definition_threshold_source_and_file(capsys: pytest.CaptureFixture) -> None:
    assert run(["list", "labels"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("    source: Wu et al. 2024 (2404.15574): retrieval score") for line in lines)
    assert "    file: headlab/labels/retrieval.py" in lines
    assert "    threshold: chance + 0.1" in lines
    assert "    chance: best fixed offset, learned on even texts" in lines


def test_the_listed_labels_say_what_the_labels_themselves_say() -> None:
    from headlab.labels import LABELS

    listed = entries("labels")
    assert list(listed) == LABELS.names() and len(listed) > 15
    for name, label in LABELS.working().items():
        facts = listed[name]
        assert (facts["definition"], facts["source"], facts["chance"]) == (label.definition, label.source, label.null)
        assert facts["threshold"] == (label.threshold if label.margin is None else "chance + 0.1")
        assert (Path(headlab.__file__).parent.parent / facts["file"]).is_file()
    assert "{relation}" in listed["syntactic"]["definition"]
    assert "none of the other labels" in listed["mixed"]["definition"]


def test_the_list_of_metrics_defines_the_loss_of_every_task(capsys: pytest.CaptureFixture) -> None:

    assert set(entries("metrics")["loss"]["loss"]) == set(entries("tasks"))
    assert run(["list", "metrics"]) == 0
    printed = capsys.readouterr().out
    assert "loss of minimal-pairs: ln p(bad sentence) - ln p(good sentence), in nats; below 0" in printed


def test_models_and_tasks_are_listed_with_each_other(capsys: pytest.CaptureFixture) -> None:
    from headlab.models import demo_models

    fitting = {name: facts["tasks"] for name, facts in entries("models").items() if facts["tasks"] is not None}
    assert set(fitting) == set(demo_models())
    assert {task for tasks in fitting.values() for task in tasks} <= set(entries("tasks"))
    assert run(["list", "models"]) == 0
    assert "tasks: lm, minimal-pairs, probe" in capsys.readouterr().out
    assert run(["list", "tasks"]) == 0
    printed = capsys.readouterr().out
    assert "(demo models: demo:minilm, demo:smollm2, demo:distilbert-tagger)" in printed
    assert "(demo models: none, it needs a model with a head of its own)" in printed


def test_list_without_a_topic_prints_all_and_loads_no_torch() -> None:
    code = "import sys; from headlab.cli import run; run(['list']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"separator", "gradient", "minimal-pairs", "perplexity", "entropy", "demo:minilm"} <= set(
        done.stdout.split()
    )


def test_the_listed_statistics_are_those_of_the_engine() -> None:
    from headlab.attention.observe.statistics import STATISTICS

    assert set(entries("statistics")) == set(STATISTICS)


def test_the_help_of_dump_names_the_labels_that_it_leaves_out() -> None:
    from headlab.commands.dump import LABELS_HELP
    from headlab.labels import LABELS, default_labels, families

    own = sorted(set(LABELS.names()) - set(default_labels()) - set(families()))
    assert f"({', '.join(own)})" in LABELS_HELP


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("choose one with text_column.", "choose one with --text-column."),
        ("max_length = 1 is out of range.", "--max-length = 1 is out of range."),
        (
            "The task 'lm' does not use the option 'label_column'.",
            "The task 'lm' does not use the option --label-column.",
        ),
        ("No column 'text_column' in text_column.tsv.", "No column 'text_column' in text_column.tsv."),
    ],
)
def test_errors_name_the_options_of_the_command_line(text: str, expected: str) -> None:
    from headlab.base.errors import DataError
    from headlab.cli.errors import describe

    assert describe(DataError(text, text)) == (expected, expected, 1)


WRONG_USAGE = {
    "no command": ([], "Missing command"),
    "unknown command": (["dmup"], "dmup"),
    "unknown option": (["list", "--colour"], "--colour"),
    "no model": (["inspect"], "MODEL"),
    "no output folder": (["dump", "MODEL"], "--out"),
    "unknown list": (["list", "label"], "Did you mean 'labels'?"),
    "unknown label": (["dump", "MODEL", "--out", "OUT", "--labels", "seperator"], "Did you mean 'separator'?"),
    "unknown statistic": (["dump", "MODEL", "--out", "OUT", "--statistics", "entropie"], "Did you mean 'entropy'?"),
    "unknown task": (["sweep", "MODEL", "--out", "OUT", "--task", "minimal-pair"], "Did you mean 'minimal-pairs'?"),
    "unknown task to dump": (["dump", "MODEL", "--out", "OUT", "--task", "probes"], "Did you mean 'probe'?"),
    "unknown score": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--scores", "gradeint"], "'gradient'"),
    "unknown ablation": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--ablation", "nil"], "zero"),
    "unknown within": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--within", "layers"], "'layer'"),
    "unknown kind": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--kinds", "encoders"], "'encoder'"),
    "budget above 100 %": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--budgets", "0,110%"], "110%"),
    "negative budget": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--budgets=-5%"], "-5%"),
    "budget that is none": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--budgets", "few"], "few"),
    "no random order": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--seeds", "0"], "seeds"),
    "limit of none": (["dump", "MODEL", "--out", "OUT", "--limit", "0"], "limit"),
    "layers without maps": (["dump", "MODEL", "--out", "OUT", "--layers", "1"], "--maps"),
    "layers that are none": (["dump", "MODEL", "--out", "OUT", "--maps", "1", "--layers", "first"], "first"),
    "layers from last to first": (["dump", "MODEL", "--out", "OUT", "--maps", "1", "--layers", "1-0"], "Write 0-1."),
    "negative number of heads": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--budgets=-1"], "start at 0"),
    "negative seed": (["dump", "MODEL", "--out", "OUT", "--seed", "-1"], "--seed"),
    "seed above 32 bits": (["sweep", "MODEL", "--out", "OUT", "--task", "lm", "--seed", "4294967296"], "--seed"),
    "two sources of text": (["dump", "MODEL", "--out", "OUT", "--text", "a", "--task", "lm"], "--text"),
    "data without a task": (["dump", "MODEL", "--out", "OUT", "--data", "a"], "--task"),
    "unknown format": (["dump", "MODEL", "--out", "OUT", "--format", "xls"], "xls"),
}


@pytest.mark.parametrize("case", WRONG_USAGE)
def test_wrong_usage_exits_with_2_before_a_model_is_opened(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, expected = WRONG_USAGE[case]
    monkeypatch.setattr("headlab.commands.options.ModelOptions.open_checkpoint", _must_not_be_called)
    monkeypatch.setattr("headlab.commands.options.RunRequest.open_task", _must_not_be_called)
    out = tmp_path / "out"
    assert run([str(out) if argument == "OUT" else argument for argument in arguments]) == 2
    _assert_cause_and_remedy(capsys, expected)
    assert not out.exists()


def _must_not_be_called(*_: object, **__: object) -> None:
    raise AssertionError("a model was opened")


def _assert_cause_and_remedy(capsys: pytest.CaptureFixture, expected: str) -> None:
    """Two lines on stderr, one of cause, one of remedy; nothing on stdout."""
    printed = capsys.readouterr()
    assert printed.out == ""
    cause, remedy = printed.err.splitlines()
    assert cause.startswith("Error: ")
    assert remedy.startswith("Remedy: ")
    assert expected in printed.err


def test_a_foreign_folder_is_refused_and_left_alone_even_with_overwrite(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert run(["dump", "MODEL", "--out", str(tmp_path), "--overwrite"]) == 2
    _assert_cause_and_remedy(capsys, "no run of headlab")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "file").write_text("mine")
    assert run(["dump", "MODEL", "--out", str(tmp_path / "file" / "below")]) == 2
    _assert_cause_and_remedy(capsys, "is a file")


def test_a_place_that_cannot_be_written_is_refused(capsys: pytest.CaptureFixture) -> None:
    assert run(["dump", "MODEL", "--out", "/proc/headlab"]) == 2
    _assert_cause_and_remedy(capsys, "/proc")


def test_a_report_of_a_folder_that_is_no_run_fails_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert run(["report", str(tmp_path / "missing"), "--out", str(tmp_path / "r.html")]) in (1, 2)
    _assert_cause_and_remedy(capsys, "missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "expected"), [("data.csv", "does not end in .html"), ("own.html", "is no report of headlab")]
)
def test_a_report_replaces_only_a_report(
    name: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.report.page.page.find_runs", lambda folders: [])
    page = tmp_path / name
    page.write_text("<title>My headlab report</title>", encoding="utf-8")
    assert run(["report", str(tmp_path), "--out", str(page)]) == 2
    _assert_cause_and_remedy(capsys, expected)
    assert page.read_text(encoding="utf-8") == "<title>My headlab report</title>"


def test_a_report_replaces_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlab.report.page.page.find_runs", lambda folders: [])
    page = tmp_path / "page.html"
    assert run(["report", str(tmp_path), "--out", str(page)]) == 0
    earlier = page.read_text(encoding="utf-8")
    page.write_text(earlier + "<!-- earlier -->", encoding="utf-8")
    assert run(["report", str(tmp_path), "--out", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == earlier


def test_ctrl_c_exits_with_130(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headlab.cli.list_names.entries", interrupt)
    assert run(["list"]) == 130
    assert "Interrupted" in capsys.readouterr().err


def test_the_traceback_is_shown_only_with_debug(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("headlab.cli.list_names.entries", fail)
    assert run(["list"]) == 1
    printed = capsys.readouterr().err
    assert printed == "Error: RuntimeError: two lines\nRemedy: Run it again with --debug for the traceback.\n"
    assert run(["list", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["dump", "MODEL"], ["sweep", "MODEL", "--task", "lm"]])
def test_plugin_files_are_loaded_before_anything_else(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headlab.base.errors import UsageError

    loaded = []

    def load(path: Path) -> None:
        loaded.append(path.name)
        if path.name == "b.py":
            raise UsageError(f"{path} holds no plugin.", "Define one.")

    monkeypatch.setattr("headlab.commands.plugins.load_plugins", load)
    files = ["--plugin", "a.py", "--plugin", "b.py"]
    assert run([*command, "--out", str(tmp_path / "out"), "--seed", "7", *files]) == 2
    _assert_cause_and_remedy(capsys, "b.py holds no plugin")
    assert loaded == ["a.py", "b.py"] and not (tmp_path / "out").exists()
