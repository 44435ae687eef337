"""The report in a real browser: nothing goes wrong, nothing is loaded, and every control does what it says."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from headlab.base.masks import head_names
from headlab.report.notebook import heads_html
from headlab.report.page.page import write_report
from headlab.runs.maps import AttentionMap

Write = Callable[..., Path]
HEBREW, EMOJI, EVIL = "שלום", "🙂👩\u200d👧", "<script>alert(1)</script>"
LIMIT = 200  # milliseconds until an interaction is drawn
NOTED = (
    "async (act) => { const start = performance.now(); await act(); "
    "await new Promise((done) => requestAnimationFrame(() => setTimeout(done))); return performance.now() - start; }"
)


@pytest.fixture
def visit(chromium: Any, open_page: Any) -> Iterator[Callable[..., Any]]:
    """visit(path, width=1280) opens a file; closed at the end of the test."""
    opened: list[Any] = []

    def inner(path: Path, width: int = 1280, **context: Any) -> Any:
        opened.append(open_page(chromium, path, width, **context))
        return opened[-1]

    yield inner
    for page in opened:
        page.context.close()


@pytest.fixture
def whole(visit: Callable[..., Any], whole_run: SimpleNamespace) -> Any:
    return visit(whole_run.report)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_cleanly_and_fits(visit: Any, whole_run: SimpleNamespace, width: int, tmp_path: Path) -> None:
    opened = visit(whole_run.report, width)
    assert opened.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    opened.page.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 20_000
    assert opened.is_clean()


def test_without_scripts_sentences_figures_and_tables_are_there(visit: Any, whole_run: SimpleNamespace) -> None:
    opened = visit(whole_run.report, java_script_enabled=False)
    assert "72 attention heads" in opened.text(".summary")
    assert opened.page.locator("table").count() == 9
    assert "need JavaScript" in opened.text("noscript")
    assert not opened.page.locator('[data-part="map"]').is_visible()


def test_picking_a_head_changes_the_detail(whole: Any, whole_run: SimpleNamespace) -> None:
    before = whole.text(".detail h4")
    whole.page.locator('.cell[data-row="39"]').click()
    assert before.startswith("L0H2") and whole.text(".detail h4") == "L3H3: encoder, layer 3, head 3"
    row = whole_run.heads.iloc[39]
    whole.page.locator(".detail summary").click()
    shown = whole.text(".detail dl")
    for column in ("entropy", "prev_mass", "distance"):
        assert f"{row[column]:.3f}" in shown
    evidence = whole.text(".detail table")
    assert f"{row['sink_score']:.3f}" in evidence and f"{row['sink_threshold']:.3f}" in evidence
    rank = int((whole_run.heads["score_ablation"] < row["score_ablation"]).sum())
    assert f"more than {rank} of 71 other heads" in whole.text(".costs")
    assert "No attention map of this head is stored" in whole.text(".detail")
    assert whole.page.locator('.cell[data-row="39"]').get_attribute("aria-selected") == "true"


def test_the_keyboard_alone_is_enough(whole: Any) -> None:
    page = whole.page
    page.locator('[data-part="map"] input[type=search]').focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.row") == "2"  # the picked head, L0H2
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    assert whole.text(".detail h4").startswith("L2H3")
    page.keyboard.press("End")
    page.keyboard.press("Space")
    assert whole.text(".detail h4").startswith("L2H11")
    assert "L2H11" in page.evaluate("document.activeElement.getAttribute('aria-label')")


def test_filters_leave_what_they_say(whole: Any, whole_run: SimpleNamespace) -> None:
    heads, page = whole_run.heads, whole.page
    search = page.locator('[data-part="map"] input[type=search]')

    def kept() -> set[int]:
        return set(page.eval_on_selector_all(".cell:not(.out)", "cells => cells.map((c) => Number(c.dataset.row))"))

    layers = heads.index.get_level_values("layer")
    for text, wanted in (
        ("L3", layers == 3),
        ("sink", heads["sink"].astype(bool)),
        ("entropy < 1.5 and L2", (heads["entropy"] < 1.5) & (layers == 2)),
        ("previous token, score_gradient >= 0.004", heads["previous_token"] & (heads["score_gradient"] >= 0.004)),
        ("none", heads["labels"] == "none"),
        ("L1H11", (layers == 1) & (heads.index.get_level_values("head") == 11)),
    ):
        search.fill(text)
        rows = set(np.flatnonzero(np.asarray(wanted, dtype=bool)))
        assert kept() == rows, text
        assert f"{len(rows)} of 72 heads" in whole.text('[data-part="map"] [role=status]')
    search.fill("colour > 3")
    assert "“colour > 3” is no head" in whole.text('[data-part="map"] [role=status]')
    search.fill("")
    page.locator('.chip[data-label="6"]').click()  # the label sink in the legend
    assert kept() == set(np.flatnonzero(heads["sink"].astype(bool)))


def test_colour_order_and_logarithm(whole: Any, whole_run: SimpleNamespace) -> None:
    page, heads = whole.page, whole_run.heads
    colour, order = (page.locator('[data-part="map"] select').nth(i) for i in (0, 1))
    colour.select_option("first_mass")
    least, most = int(heads["first_mass"].argmin()), int(heads["first_mass"].argmax())

    def background(row: int) -> str:
        return page.evaluate(f"getComputedStyle(document.querySelector('.cell[data-row=\"{row}\"]')).backgroundColor")

    assert background(most) == "rgb(253, 231, 37)"  # the end of viridis
    middle = int((heads["first_mass"] - 0.3).abs().argmin())
    before = background(middle)
    page.locator('[data-part="map"] .check input').check()
    assert background(middle) != before and "log colour" in whole.text(".legend")
    assert background(least) == "rgb(68, 1, 84)"
    order.select_option("all")
    shown = page.eval_on_selector_all(".cell", "cells => cells.map((c) => Number(c.dataset.row))")
    assert shown == list(np.argsort(-heads["first_mass"].to_numpy(), kind="stable"))
    order.select_option("layer")
    shown = page.eval_on_selector_all(
        ".line", "l => l.map((x) => [...x.querySelectorAll('.cell')].map((c) => +c.dataset.row))"
    )
    assert shown[4] == list(48 + np.argsort(-heads["first_mass"].to_numpy()[48:60], kind="stable"))


def test_tables_sort_and_copy_as_csv(visit: Any, whole_run: SimpleNamespace) -> None:
    opened = visit(whole_run.report, permissions=["clipboard-read", "clipboard-write"])
    page = opened.page
    page.locator("summary", has_text="Heads").first.click()
    table = page.locator('[aria-label="Heads"].table')
    table.locator("th button", has_text="distance").first.click()
    expected = whole_run.heads.sort_values("distance", ascending=False)
    assert table.locator("tbody tr").first.locator("td").first.inner_text() == head_names(expected.index)[0]
    table.locator("th button", has_text="distance").first.click()
    assert table.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.locator(".copy button", has_text="Copy as CSV").nth(0).click()
    page.locator(".copy [role=status]", has_text="copied").first.wait_for()
    copied = pd.read_csv(io.StringIO(page.evaluate("navigator.clipboard.readText()")))
    np.testing.assert_allclose(copied["distance"], expected["distance"][::-1], rtol=1e-6)
    np.testing.assert_allclose(copied["score_gradient"], expected["score_gradient"][::-1], rtol=1e-6)
    assert opened.is_clean()


def test_curves_answer_with_the_numbers_of_the_sweep(whole: Any, whole_run: SimpleNamespace) -> None:
    page, sweep = whole.page, whole_run.sweep
    row = sweep[(sweep["strategy"] == "gradient") & (sweep["budget"] == "50%")].iloc[0]
    mark = page.locator('.mark[aria-label^="gradient: 36 of 72"]')
    mark.focus()
    tip = whole.text('[data-part="curves"] .readout')
    for value in (row["value"], row["drop"], row["ci_low"], row["ci_high"]):
        assert f"{value:.3f}" in tip
    note = whole.text('[data-part="curves"] > p.soft')
    assert "Judged on the report split (160 examples)" in note
    bands = page.locator(".band").count()
    page.locator('[data-part="curves"] .chip', has_text="random").click()
    assert bands == 1 and page.locator(".band").count() == 0
    page.locator('[data-part="curves"] .check input').check()
    assert page.locator(".front").count() == 1 and "no other cut beats" in whole.text('[data-part="curves"] > p.soft')
    page.locator('[data-part="curves"] select').nth(1).select_option("drop")
    assert "drop in accuracy" in page.locator('[data-part="curves"] svg').first.text_content()


@pytest.fixture
def odd(visit: Any, write_run: Write, small_heads: pd.DataFrame, fake: SimpleNamespace) -> Any:
    """A page about odd tokens, a 512-token map, 2,000 equal tokens, and cross-attention."""
    tokens = ["[CLS]", EVIL, HEBREW, EMOJI, "café", "##ed", "\u202eabc", "[SEP]"]
    maps = fake.maps(tokens, [("encoder", 0, 0), ("encoder", 0, 1)])
    rng = np.random.default_rng(0)
    long = rng.dirichlet(np.full(512, 0.1), size=512)
    names = [f"w{i}" for i in range(512)]
    maps.append(AttentionMap("encoder", 1, 0, 1, long, names, names))
    maps.append(AttentionMap("encoder", 1, 1, 1, np.eye(512), names, names))
    same = ["the"] * 2000
    maps.append(AttentionMap("encoder", 2, 0, 2, np.tri(2000) / np.arange(1, 2001)[:, None], same, same))
    cross = np.array([[0.1, 0.2, 0.7], [0.25, 0.5, 0.25]])
    maps.append(AttentionMap("cross", 0, 3, 3, cross, ["▁ich", "</s>"], ["▁I", "▁am", "</s>"]))
    return visit(write_report(write_run("odd", heads=small_heads, maps=maps)))


def viewer(opened: Any, *, text: int, view: str = "matrix") -> Any:
    part = opened.page.locator('[data-part="viewer"]')
    part.locator("select").nth(0).select_option(str(text))
    part.locator("select").nth(1).select_option(view)
    opened.page.locator(".stage canvas").first.wait_for()
    opened.settle()
    return part


def test_odd_tokens_are_text_and_nothing_else(odd: Any) -> None:
    part = viewer(odd, text=0)
    canvas = part.locator("canvas")
    canvas.focus()
    odd.page.keyboard.press("ArrowRight")
    seen = []
    for _ in range(7):
        odd.page.keyboard.press("ArrowDown")
        seen.append(part.locator(".readout").inner_text())
    for token, words in zip([EVIL, HEBREW, EMOJI, "café", "ed", "�abc"], seen, strict=False):
        assert f"query \u2068{token.replace(chr(0x200D), chr(0x200D))}\u2069" in words or token == EMOJI, words
    assert "<script>alert(1)</script>" in seen[0] and "0." in seen[0]
    texts = odd.page.locator(".tokens").first.text_content()
    assert HEBREW in texts and EVIL in texts and "##" not in texts
    viewer(odd, text=0, view="lines")
    assert odd.is_clean()


def test_special_tokens_can_be_hidden(odd: Any) -> None:
    part = viewer(odd, text=0)
    assert "8 queries by 8 keys" in part.locator("canvas").get_attribute("aria-label")
    part.locator(".check input").nth(0).uncheck()
    odd.settle()
    assert "6 queries by 6 keys" in part.locator("canvas").get_attribute("aria-label")
    assert "hidden, not removed" in part.locator("p.soft").last.inner_text()


def test_cross_attention_has_two_lists_of_tokens(odd: Any) -> None:
    part = viewer(odd, text=3)
    canvas = part.locator("canvas")
    assert "2 queries by 3 keys" in canvas.get_attribute("aria-label")
    canvas.focus()
    odd.page.keyboard.press("ArrowDown")
    odd.page.keyboard.press("ArrowRight")
    odd.page.keyboard.press("ArrowRight")
    assert part.locator(".readout").inner_text() == "X0H3: query \u2068ich\u2069 (0) → key \u2068</s>\u2069 (2): 0.700"
    odd.page.keyboard.press("ArrowDown")
    assert part.locator(".readout").inner_text().endswith("key \u2068</s>\u2069 (2): 0.250")


def test_one_head_several_heads_and_all(whole: Any) -> None:
    part = viewer(whole, text=0)
    assert part.locator("canvas").count() == 1 and part.locator(".thumb").count() == 0
    part.locator("button", has_text="all heads").click()
    whole.settle()
    assert part.locator(".thumb").count() == 2
    part.locator(".chips.heads .chip").nth(0).click()
    whole.settle()
    assert "L4H2" in part.locator("canvas").get_attribute("aria-label")
    assert part.locator(".chips.heads .chip").nth(0).get_attribute("aria-pressed") == "false"


def test_the_number_under_the_pointer_is_the_weight(odd: Any) -> None:
    part = viewer(odd, text=3)
    part.locator("canvas").scroll_into_view_if_needed()
    box = part.locator("canvas").bounding_box()
    cell = 26  # pixels of a cell in a small map; 78 and 74 are left for tokens
    odd.page.mouse.move(box["x"] + 78 + 1.5 * cell, box["y"] + 74 + 1.5 * cell)
    assert part.locator(".readout").inner_text().endswith("key \u2068am\u2069 (1): 0.500")


def timed(opened: Any, action: str) -> float:
    """Least of five times in milliseconds from an action to its drawing; the machine's other work is left out."""
    taken = [opened.page.evaluate(f"({NOTED})(async () => {{ {action} }})") for _ in range(5)]
    print(f"{min(taken):.0f} ms (median {sorted(taken)[2]:.0f}): {' '.join(action.split())[:90]}")
    return min(taken)


DRAWN = """const stage = document.querySelector('.stage'), before = stage.dataset.drawn;
    {act};
    while (stage.dataset.drawn === before) await new Promise((done) => setTimeout(done));"""
SELECT = "const s = document.querySelectorAll('[data-part=viewer] {0}')[{1}]; {2}; s.dispatchEvent(new Event('{3}'))"


@pytest.mark.parametrize("text", [1, 2])
def test_long_maps_answer_within_200_ms(odd: Any, text: int) -> None:
    viewer(odd, text=text)
    log = DRAWN.format(act=SELECT.format(".check input", 1, "s.checked = !s.checked", "change"))
    assert timed(odd, log) < LIMIT
    assert timed(odd, DRAWN.format(act=SELECT.format(".check input", 0, "s.checked = !s.checked", "change"))) < LIMIT
    move = """const c = document.querySelector('.stage canvas'), b = c.getBoundingClientRect();
        const at = {clientX: b.x + 200, clientY: b.y + 200 * Math.random() + 90};
        c.dispatchEvent(new PointerEvent('pointermove', at))"""
    assert timed(odd, move) < LIMIT
    assert "query" in odd.text('[data-part="viewer"] .readout')
    viewer(odd, text=text, view="lines")
    scroll = "document.querySelector('.lines').scrollTop = 3000 * Math.random()"
    assert timed(odd, scroll) < LIMIT
    threshold = SELECT.format("input[type=range]", 0, "s.value = s.value === '-3' ? '-2' : '-3'", "input")
    assert timed(odd, DRAWN.format(act=threshold)) < LIMIT
    point = """const c = document.querySelector('.lines canvas'), b = c.getBoundingClientRect();
        const at = {clientX: b.x + 50, clientY: b.y + 300 * Math.random() + 60};
        c.dispatchEvent(new PointerEvent('pointermove', at))"""
    assert timed(odd, point) < LIMIT
    assert "are not drawn" in odd.text(".stage p.soft")
    assert odd.is_clean()


def test_runs_side_by_side(
    visit: Any, write_run: Write, encoder_heads: pd.DataFrame, encoder_sweep: pd.DataFrame
) -> None:
    other = encoder_heads.assign(entropy=encoder_heads["entropy"] ** 2 + encoder_heads["distance"])
    changed = ("encoder", 2, 3)
    other.loc[changed, "broad"] = not other.loc[changed, "broad"]
    first = write_run("first", heads=encoder_heads, sweep=encoder_sweep)
    second = write_run("second", heads=other, sweep=encoder_sweep)
    opened = visit(write_report([first, second]))
    opened.page.locator("#compare summary").click()
    table = opened.page.locator('[aria-label="Rank correlations"]')
    row = table.locator("tr", has=opened.page.locator("td", has_text="entropy")).first.inner_text().split("\t")
    rho = stats.spearmanr(encoder_heads["entropy"], other["entropy"]).statistic
    assert row[3] == f"{rho:.3f}" and row[5] == "72"
    assert "L2H3" in opened.page.locator('[aria-label="Label changes"]').inner_text()
    assert opened.page.locator('[data-part="curves-together"] .chip').count() == 6
    opened.page.locator(".walk button").click()
    opened.page.locator(".walk [role=status]", has_text="second").wait_for()
    assert opened.is_clean()


def test_a_notebook_shows_the_page_in_a_frame(
    visit: Any, tmp_path: Path, small_heads: pd.DataFrame, fake: SimpleNamespace
) -> None:
    maps = fake.maps(["[CLS]", EVIL, "[SEP]"], [("encoder", 0, 0)])
    path = tmp_path / "notebook.html"
    frame = heads_html(small_heads, maps)
    path.write_text(
        f"<!DOCTYPE html><html data-ready='yes'><meta charset='utf-8'><body>{frame}</body></html>", encoding="utf-8"
    )
    opened = visit(path)
    inner = opened.page.frame_locator("iframe")
    inner.locator('.cell[data-row="5"]').click()
    assert inner.locator(".detail h4").inner_text().startswith("L0H5")
    inner.locator(".stage canvas").focus()
    opened.page.keyboard.press("ArrowDown")
    assert opened.problems == [] and [u for u in opened.requests if not u.startswith("about:")] == [path.as_uri()]


def test_a_column_of_nothing_is_hatched_and_one_head_is_enough(
    visit: Any, write_run: Write, fake: SimpleNamespace
) -> None:
    heads = fake.heads({"encoder": (1, 1)})[["entropy", "prev_mass"]].assign(prev_mass=np.nan)
    opened = visit(write_report(write_run("one", heads=heads)))
    opened.page.locator('[data-part="map"] select').nth(0).select_option("prev_mass")
    assert "no head has a value here" in opened.text(".legend")
    assert opened.page.locator(".cell.undefined").count() == 1
    assert opened.is_clean()


def test_single_heads_tell_what_each_costs(visit: Any, tmp_path: Path) -> None:
    rows = [("cross", 0, head, "loss", drop, q) for head, drop, q in ((0, 0.5, 0.01), (1, -0.1, 0.9), (2, 0.2, 0.04))]
    table = pd.DataFrame(rows, columns=["kind", "layer", "head", "metric", "drop", "q"])
    table.to_csv(tmp_path / "single.csv", index=False)
    opened = visit(write_report([tmp_path]))
    opened.page.locator('.cell[data-row="2"]').click()
    assert opened.text(".detail h4").startswith("X0H2")
    assert "without the head 0.200 (nats), q = 0.040: more than 1 of 2 other heads." in opened.text(".costs")
    assert opened.is_clean()
