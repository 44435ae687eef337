"""Plugins of other people: added in Python, read from a file, announced by a package; and bad ones of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from headlab.base.errors import PluginError, UsageError
from headlab.base.registry import plugins_of_file
from headlab.cli import run
from headlab.commands.plugins import load_plugins
from headlab.labels import LABELS, described
from headlab.metrics import METRICS, Metric, metric

FILE = """
from headlab.metrics import Metric, metric
from headlab.metrics.accuracy import METRIC as imported
ERRORS = Metric(name="{name}", title="errors", text="Share of wrong answers.", columns=("correct", "examples"),
                value=lambda sums: 1 - sums["correct"] / sums["examples"], higher_is_better=False, unit="share",
                bounds=(0.0, 1.0), definition="1 - accuracy", source="ours")
"""


LABEL = """
from headlab import Label
from headlab.labels import KeyClass
SECOND = Label(name="second_token", title="second token", text="Looks at the second token.", letter="2",
               colour="#123456", statistic="target", threshold=0.5, published_chance=0.1,
               definition="mean attention to it", source="ours",
               target=KeyClass(lambda scene: scene.keys.valid & (scene.positions(scene.keys) == 1)))
"""


def half(name: str = "half_right") -> Metric:
    return Metric(name=name, columns=("correct",), value=lambda sums: sums["correct"] / 2, higher_is_better=True)


@pytest.fixture(autouse=True)
def forgotten():
    """Plugins that a test adds are gone after it."""
    yield
    for registry in (METRICS, LABELS):
        for name in set(registry.names()) - set(registry.built_in()):
            registry.discard(name)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Install a package of one module with one entry point for metrics."""

    def install(name: str, source: str, target: str = "theirs:METRIC") -> None:
        folder = tmp_path / "site"
        info = folder / "theirs-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[headlab.metrics]\n{name} = {target}\n")
        (folder / "theirs.py").write_text(source)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(__import__("sys").modules, "theirs", raising=False)

    return install


def test_an_added_plugin_is_known_by_its_name_and_may_be_replaced():
    first, second = half(), half()
    assert METRICS.add(first) is first and metric("half-right") is first
    METRICS.add(second)
    assert metric("half_right") is second and "half_right" in METRICS.names()


def test_the_name_of_a_built_in_plugin_is_taken():
    with pytest.raises(PluginError, match="'accuracy' comes with headlab"):
        METRICS.add(half("accuracy"))


def test_what_is_no_plugin_is_refused():
    with pytest.raises(PluginError, match="is no metric"):
        METRICS.add("accuracy")  # type: ignore[arg-type]


def test_a_plugin_file_adds_what_it_defines_and_not_what_it_imports(tmp_path: Path):
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(name="errors"))
    (plugin,) = plugins_of_file(path, [METRICS])
    assert plugin is metric("errors") and METRICS.file("errors") is None
    assert METRICS.summary("errors") == "Share of wrong answers."


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "no Python file"),
        ("import a_package_that_nobody_has", "ModuleNotFoundError: No module named 'a_package_that_nobody_has'"),
        ("def broken(:", "SyntaxError"),
        ("number = 3", "holds no plugin"),
        (FILE.format(name="bleu"), "A metric named 'bleu' comes with headlab"),
    ],
)
def test_a_bad_plugin_file_is_named_and_adds_nothing(source: str | None, says: str, tmp_path: Path):
    path = tmp_path / "mine.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(UsageError, match=says) as error:
        plugins_of_file(path, [METRICS])
    assert str(path) in str(error.value) and error.value.remedy
    assert METRICS.names() == METRICS.built_in()


def test_a_package_announces_a_plugin_by_an_entry_point(package):
    package("errors", FILE.format(name="errors"), "theirs:ERRORS")
    assert "errors" in METRICS.names() and metric("errors").definition == "1 - accuracy"
    assert METRICS.broken() == {}
    with pytest.raises(PluginError, match="Another package brings a metric named 'errors'"):
        METRICS.add(half("errors"))


@pytest.mark.parametrize(
    ("name", "source", "says"),
    [
        ("errors", "import a_package_that_nobody_has", "cannot be imported: ModuleNotFoundError"),
        ("errors", "METRIC = 3", "is no metric"),
        ("errors", FILE.format(name="mistakes") + "METRIC = ERRORS", "gives the metric 'mistakes'"),
        ("bleu", FILE.format(name="bleu") + "METRIC = ERRORS", "has the name of a metric that comes with headlab"),
    ],
)
def test_a_broken_entry_point_is_named_and_the_rest_works(package, name: str, source: str, says: str):
    package(name, source)
    assert says in METRICS.broken()[name] and "of the package theirs" in METRICS.broken()[name]
    with pytest.warns(UserWarning, match=says):
        assert set(METRICS.working()) == set(METRICS.built_in())
    assert metric("bleu").unit == "points"
    if name == "errors":
        with pytest.raises(PluginError, match=says):
            metric("errors")


def test_a_label_of_ones_own_is_observed_by_itself_and_by_name(tmp_path: Path) -> None:
    from headlab.testing.examples import example_heads, random_texts, text_batch

    path = tmp_path / "mine.py"
    path.write_text(LABEL)
    (label,) = load_plugins(path)
    heads, batch = example_heads(), text_batch(random_texts())
    table = heads.observe([batch], labels=[label, "sink"])
    pd.testing.assert_frame_equal(heads.observe([batch], labels=["second-token", "sink"]), table)
    assert table["second_token_score"].notna().all() and described("second_token").letter == "2"


def test_the_command_line_takes_and_lists_plugin_files(
    tmp_path: Path, tiny_classifier: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(LABEL + FILE.format(name="errors"))
    texts = tmp_path / "texts.txt"
    texts.write_text("a text of some words\nanother text\n")
    asked = ["--text", str(texts), "--plugin", str(path), "--labels", "second_token", "--json"]
    assert run(["dump", str(tiny_classifier), "--out", str(tmp_path / "out"), *asked]) == 0
    assert "second_token_score" in json.loads(capsys.readouterr().out)["heads"][0]
    assert run(["list", "metrics", "--plugin", str(path)]) == 0
    assert "errors               Share of wrong answers." in capsys.readouterr().out


def test_the_list_names_a_broken_entry_point(package, capsys: pytest.CaptureFixture) -> None:
    package("errors", "import a_package_that_nobody_has")
    assert run(["list", "metrics"]) == 0
    printed = capsys.readouterr().out
    assert "cannot be imported: ModuleNotFoundError" in printed and "\nbleu " in printed
