"""The report: one file, complete, nothing loaded, nothing executed, every word escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from headlab.base.errors import DataError, UsageError
from headlab.report import web
from headlab.report.page import page
from headlab.report.page.page import write_report
from headlab.report.page.summary import number, summarize
from headlab.report.pictures import write_figures
from headlab.runs.meta import read_meta, write_meta
from headlab.runs.stored_run import find_runs
from headlab.runs.tables import SWEEP_COLUMNS, save_table

Write = Callable[..., Path]


class Page(HTMLParser):
    """Tags, attributes, tables, visible text and JSON of a report."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.text, self.json, self.scripts = "", {}, []
        self._open: list[str] = []
        self._data = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "script":
            self._data = dict(attrs).get("id") or ""
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "script" in self._open:
            if self._data:
                self.json[self._data] = json.loads(data)
            else:
                self.scripts.append(data)
        elif "style" not in self._open:
            self.text += data
            if self._open and self._open[-1] in {"td", "th"}:
                self.tables[-1][-1][-1] += data


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(whole_run: SimpleNamespace) -> Page:
    return read(whole_run.report)


def test_report_of_a_whole_run(whole_run: SimpleNamespace, whole: Page) -> None:
    assert whole_run.report == whole_run.folder / "report.html"
    for words in (
        "demo:minilm",
        "72 attention heads in 6 encoder layers",
        "Head map",
        "What removing heads costs",
        "Attention viewer",
        "Figures for print",
        "clearly worsens accuracy",
        "headlab sweep demo:minilm --task probe --out runs/minilm",
        "model.revision",
        "c0ffee123456",
        "versions.transformers",
        "Looks at the token just before.",
    ):
        assert words in whole.text, words


def test_nothing_is_loaded_and_only_the_scripts_of_headlab_run(whole_run: SimpleNamespace) -> None:
    text = whole_run.report.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"'<>]*", text)) == {"http://www.w3.org/2000/svg"}  # the name of SVG
    shown = Page(text)
    for tag, attributes in shown.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base", "form"}
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/svg+xml;base64,", "#")), value
    assert "url(" not in text and "@import" not in text
    assert shown.scripts == [web.script()] and "</script" not in web.script() and "<!--" not in web.script()
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(|XMLHttp|import\(", web.script())


def test_the_policy_names_the_script_and_the_style_and_nothing_else(whole: Page) -> None:
    policy = next(a["content"] for t, a in whole.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy
    digest = base64.b64encode(hashlib.sha256(whole.scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_every_word_from_outside_is_escaped(write_run: Write, small_heads: pd.DataFrame, fake: SimpleNamespace) -> None:
    evil = "</script><script>alert(1)</script>"
    table = small_heads.assign(distance=1.0).rename(columns={"distance": f"{evil}<b>"})
    maps = fake.maps(["<script>alert(1)</script>", "&amp;", "שלום"], [("encoder", 0, 0)])
    folder = write_run(evil.replace("/", "\\"), heads=table, maps=maps, model=evil, command=f"headlab dump '{evil}'")
    text = write_report(folder).read_text(encoding="utf-8")
    assert "<script>alert" not in text and "<b>" not in text
    shown = Page(text)
    assert evil in shown.text and "<script>alert(1)</script>" in shown.text and "&amp;" in shown.text
    assert shown.json["run-1-data"]["meta"]["command"] == f"headlab dump '{evil}'"


def test_tables_are_complete(whole_run: SimpleNamespace, whole: Page) -> None:
    shown, encoder_heads, encoder_sweep = whole, whole_run.heads, whole_run.sweep
    assert [len(table) - 1 for table in shown.tables] == [72] * 8 + [len(encoder_sweep)]
    columns = {name for table in shown.tables for name in table[0]}
    assert columns >= {str(c) for c in encoder_heads.columns} | set(SWEEP_COLUMNS)
    heads = shown.tables[0]
    assert [row[0] for row in heads[1:4]] == ["L0H0", "L0H1", "L0H2"]
    place = heads[0].index("prev_mass")
    np.testing.assert_allclose([float(row[place]) for row in heads[1:]], encoder_heads["prev_mass"], atol=5.1e-4)
    place = heads[0].index("score_gradient")  # small numbers keep their digits
    np.testing.assert_allclose([float(row[place]) for row in heads[1:]], encoder_heads["score_gradient"], atol=5.1e-6)
    place = shown.tables[7][0].index("sink")
    assert [row[place] for row in shown.tables[7][1:]] == ["yes" if value else "no" for value in encoder_heads["sink"]]


def test_the_page_carries_the_tables_as_json(whole_run: SimpleNamespace, whole: Page) -> None:
    data, encoder_heads = whole.json["run-1-data"], whole_run.heads
    assert data["heads"]["kind"] == ["encoder"] * 72 and data["heads"]["head"][:3] == [0, 1, 2]
    np.testing.assert_allclose(data["heads"]["entropy"], encoder_heads["entropy"], rtol=1e-6)
    assert data["heads"]["sink"] == encoder_heads["sink"].tolist()
    assert data["sweep"]["budget"][-1] == "90%"
    assert data["meta"]["signature"]["n"] == 320


def test_undefined_values_are_dashes_and_null(write_run: Write, decoder_heads: pd.DataFrame) -> None:
    columns = ["entropy", "separator_mass", "separator", "separator_score"]
    shown = read(write_report(write_run("smollm2", heads=decoder_heads[columns], model="demo:smollm2")))
    assert "Not defined on these texts: separator." in shown.text
    place = shown.tables[0][0].index("separator_mass")
    assert {row[place] for row in shown.tables[0][1:]} == {"–"}
    assert set(shown.json["run-1-data"]["heads"]["separator"]) == {None}


def test_only_heads(write_run: Write, small_heads: pd.DataFrame) -> None:
    shown = read(write_report(write_run("heads", heads=small_heads)))
    assert "Head map" in shown.text
    assert "removing heads" not in shown.text and "Attention viewer" not in shown.text


def test_only_a_sweep(write_run: Write, decoder_sweep: pd.DataFrame) -> None:
    shown = read(write_report(write_run("sweep", sweep=decoder_sweep)))
    assert "What removing heads costs" in shown.text and "no table of heads" in shown.text
    assert sum(tag == "img" for tag, _ in shown.tags) == 2  # accuracy and perplexity
    assert len(shown.tables) == 1


def test_heads_without_labels_leave_the_label_map_out(write_run: Write, encoder_heads: pd.DataFrame) -> None:
    shown = read(write_report(write_run("plain", heads=encoder_heads[["entropy", "prev_mass"]])))
    assert "Head map" in shown.text and "carry a label" not in shown.text
    assert sum(tag == "img" for tag, _ in shown.tags) == 0


def test_every_figure_has_words_for_those_who_cannot_see_it(whole: Page) -> None:
    images = [attributes for tag, attributes in whole.tags if tag == "img"]
    assert len(images) == 1 + 1 and all(image["alt"] and image["width"] for image in images)


def test_a_folder_of_runs_and_several_folders(write_run: Write, fake: SimpleNamespace, tmp_path: Path) -> None:
    for name in ("b/minilm", "b/smollm2", "c"):
        write_run(name, heads=fake.heads({"encoder": (1, 2)})[["entropy"]], model=f"demo:{name[-3:]}")
    path = write_report([tmp_path / "b", tmp_path / "c"], tmp_path / "out" / "all.html")
    assert path == tmp_path / "out" / "all.html"
    shown = read(path)
    assert [a["href"] for t, a in shown.tags if t == "a"] == ["#run-1", "#run-2", "#run-3", "#compare"]
    assert [run.name for run in find_runs([tmp_path / "b", tmp_path / "c", tmp_path / "b" / "minilm"])] == [
        "minilm",
        "smollm2",
        "c",
    ]
    assert write_report(tmp_path / "b", tmp_path / "out") == tmp_path / "out" / "report.html"
    assert write_report(tmp_path / "b") == tmp_path / "b" / "report.html"


def test_folders_without_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no tables of a run.*headlab dump or headlab sweep"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="There is no folder"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(DataError, match="No folder was named"):
        write_report([])
    assert list(tmp_path.iterdir()) == []


def test_tables_without_meta_are_reported_as_far_as_they_go(tmp_path: Path, small_heads: pd.DataFrame) -> None:
    save_table(small_heads, tmp_path / "bare", "heads", "csv")
    shown = read(write_report(tmp_path / "bare"))
    assert "bare: 72 attention heads" in shown.text and "recorded no command" in shown.text


def test_an_unfinished_run_says_so(small_run: Path) -> None:
    write_meta(small_run, read_meta(small_run)["signature"], finished=False)
    assert "This run is not finished" in read(write_report(small_run)).text


def test_a_failing_report_leaves_the_old_one(small_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_report(small_run)
    before = path.read_bytes()
    monkeypatch.setattr(page, "summarize", lambda run: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(small_run)
    assert path.read_bytes() == before
    (small_run / "file").write_text("")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="cannot be written"):
        write_report(small_run, small_run / "file" / "report.html")


def test_the_same_run_gives_the_same_page(small_run: Path) -> None:
    assert write_report(small_run).read_bytes() == write_report(small_run, small_run / "again.html").read_bytes()


def test_figures_are_written_as_files(write_run: Write, translator_heads: pd.DataFrame, fake: SimpleNamespace) -> None:
    maps = fake.maps(["a", "b"], [("cross", 1, 3)], keys=["x", "y"])
    folder = write_run("translator", heads=translator_heads[["distance", "sink", "sink_score"]], maps=maps)
    names = sorted(path.name for path in write_figures(folder))
    stems = ("attention-cross-0", "heat-distance", "labels")  # one map: no model view, no clusters
    assert names == [f"{stem}.{format}" for stem in stems for format in ("png", "svg")]
    assert all((folder / "figures" / name).is_file() for name in names)


def test_summary_states_cut_drop_interval_and_control(write_run: Write, encoder_sweep: pd.DataFrame) -> None:
    folder = write_run("sweep", sweep=encoder_sweep)
    sentence = next(s for s in summarize(find_runs([folder])[0]) if "gradient order" in s)
    own = encoder_sweep[(encoder_sweep["strategy"] == "gradient") & (encoder_sweep["n_removed"] > 0)]
    first = own[own["ci_low"] > 0].iloc[0]
    random = encoder_sweep[(encoder_sweep["strategy"] == "random") & (encoder_sweep["n_removed"] == first["n_removed"])]
    assert f"{first['n_removed']} of 72 heads" in sentence
    assert f"{first['drop']:.3f} [{first['ci_low']:.3f}, {first['ci_high']:.3f}]" in sentence
    assert f"against {random['drop'].mean():.3f}" in sentence and "3 random orders" in sentence


def test_summary_claims_no_loss_only_as_far_as_tested(write_run: Write, encoder_sweep: pd.DataFrame) -> None:
    folder = write_run("sweep", sweep=encoder_sweep.assign(ci_low=-0.01))
    assert any(
        "no tested cut, up to 65 of 72 heads (90 %), clearly worsens" in s for s in summarize(find_runs([folder])[0])
    )


def test_page_knows_marks_and_undefined_labels(write_run: Write, decoder_heads: pd.DataFrame) -> None:
    shown = read(write_report(write_run("undefined", heads=decoder_heads))).json["run-1-data"]
    assert {item["name"]: item["defined"] for item in shown["labels"]}["separator"] is False
    assert sum(item["defined"] for item in shown["labels"]) == 6
    assert [len(mark.replace("\n", "")) for mark in shown["marks"]] == [len(carried) for carried in shown["carried"]]


def test_summary_says_how_many_labels_hold_with_their_interval(write_run: Write, encoder_heads: pd.DataFrame) -> None:
    labels = [c for c in encoder_heads if f"{c}_low" in encoder_heads]
    carried = sum(int(encoder_heads[name].sum()) for name in labels)
    sure = sum(int((encoder_heads[f"{n}_low"] > encoder_heads[f"{n}_threshold"]).sum()) for n in labels)
    sentences = summarize(find_runs([write_run("labels", heads=encoder_heads)])[0])
    assert any(f"{sure} of these {carried} labels hold" in s for s in sentences) and 0 < sure < carried


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.12345, "0.123"),
        (1e-5, "1.00e-05"),
        (123.4, "123.4"),
        (float("inf"), "inf"),
        (None, "–"),
        (pd.NA, "–"),
        (np.nan, "–"),
        (True, "yes"),
        (np.int64(7), "7"),
        ("x", "x"),
        (0.0, "0.000"),
    ],
)
def test_numbers_are_readable(value: object, text: str) -> None:
    assert number(value) == text


def test_page_is_made_for_small_screens(whole_run: SimpleNamespace) -> None:
    text = whole_run.report.read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert re.search(r"figure img \{[^}]*max-width: 100%", text)


def test_a_run_in_progress_without_tables_is_reported_and_says_so(tmp_path: Path) -> None:
    write_meta(tmp_path / "sweep", {"model": {"name": "demo:minilm"}}, command="headlab sweep", finished=False)
    (tmp_path / "sweep" / "rows").mkdir()
    (tmp_path / "sweep" / "rows" / "ab.parquet").write_bytes(b"")
    text = read(write_report(tmp_path / "sweep")).text
    assert (
        "This run is not finished" in text
        and "masks evaluated so far: 1" in text
        and "table of heads in this run yet" in text
    )


def test_a_column_of_nothing_one_head_and_missing_columns(
    write_run: Write, fake: SimpleNamespace, tmp_path: Path
) -> None:
    one = fake.heads({"encoder": (1, 1)})[["entropy", "prev_mass"]].assign(prev_mass=np.nan)
    shown = read(write_report(write_run("one", heads=one)))
    assert (
        shown.json["run-1-data"]["heads"]["prev_mass"] == [None] and "1 attention head in 1 encoder layer" in shown.text
    )
    fake.sweep(4, {"accuracy": 0.5}).drop(columns=["ci_low", "drop"]).to_parquet(tmp_path / "one" / "sweep.parquet")
    with pytest.raises(DataError, match="lacks the columns drop, ci_low"):
        write_report(tmp_path / "one")


def test_an_older_schema_is_named_and_a_stored_index_is_read(write_run: Write, small_heads: pd.DataFrame) -> None:
    folder = write_run("old", heads=small_heads)
    small_heads.to_parquet(folder / "heads.parquet")  # as pandas writes it: the index stays an index
    assert "72 attention heads" in read(write_report(folder)).text
    small_heads.reset_index().rename(columns={"kind": "part"}).to_parquet(folder / "heads.parquet")
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"schema": 0}))
    with pytest.raises(DataError, match=r"of schema 0; this headlab writes 1.* lacks the column kind"):
        write_report(folder)
