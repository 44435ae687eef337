"""The pages of findings are those that the committed results make, and what they name exists."""

from __future__ import annotations

import re

import pytest

from scripts.documentation import findings

PAGES = findings.pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_the_one_that_the_results_make(name: str) -> None:
    committed = (findings.PAGES / name).read_text(encoding="utf-8")
    assert committed == PAGES[name], "run: python -m scripts.documentation.findings"


@pytest.mark.parametrize("name", PAGES)
def test_files_and_pictures_of_the_page_exist(name: str) -> None:
    linked = [findings.PAGES / path for path in re.findall(r"\]\(([^)#:]+)\)", PAGES[name])]
    named = [findings.ROOT / path for path in re.findall(r"`((?:results|scripts|headlab)/[\w./-]+)`", PAGES[name])]
    assert [path for path in linked + named if not path.exists()] == []


def test_a_claim_that_the_tables_do_not_bear_is_not_written() -> None:
    with pytest.raises(ValueError, match="Claim 2"):
        findings.hold(True, False)
