"""The pages of definitions are those that the plugins make."""

from __future__ import annotations

import pytest

from scripts.documentation import definitions

PAGES = definitions.pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_the_one_that_the_plugins_make(name: str) -> None:
    committed = (definitions.PAGES / name).read_text(encoding="utf-8")
    assert committed == PAGES[name], "run: ./scripts/docs --write"
