"""A headless Chromium for the tests of the page; where there is none they are skipped, except in CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The path of the system's Chromium, or None."""
    return os.environ.get("HEADLAB_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def missing(reason: str) -> None:
    """Skip with the reason, or fail where continuous integration must not skip."""
    if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(f"{reason} CI must run the tests of the page.")
    pytest.skip(reason)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser, closed at the end."""
    path = find_chromium()
    if path is None:
        missing("There is no Chromium (./scripts/test installs one with apt where it can).")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("The Python package playwright is not installed.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page with what went wrong in it: console messages, errors, dialogs, and everything that it asked for."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, **context: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, **context)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.problems.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda r: None if r.url.startswith("data:") else self.requests.append(r.url))
        self.path = path
        self.page.goto(path.as_uri())
        if context.get("java_script_enabled", True):
            self.page.wait_for_selector("html[data-ready]", state="attached")

    def text(self, selector: str) -> str:
        """What the first element of a selector says."""
        return self.page.locator(selector).first.inner_text()

    def is_clean(self) -> bool:
        """Nothing went wrong, and nothing but the file itself was asked for."""
        assert self.problems == []
        assert self.requests == [self.path.as_uri()]
        return True

    def settle(self) -> None:
        """Wait for two frames, in which whatever was asked for is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
