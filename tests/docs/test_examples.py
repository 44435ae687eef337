"""Every example in the README and in docs/ runs; tutorials as notebooks, as when the site is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headlab.base.errors
import headlab.testing
from scripts.documentation import tutorials
from tests.docs.examples import examples_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = ("tutorials", "findings", "definitions")  # run as notebooks, or without examples
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"] + [
    path for path in sorted(DOCS.rglob("*.md")) if path.relative_to(DOCS).parts[0] not in WRITTEN
]


def _marked(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.demo
@pytest.mark.parametrize(
    "page", [_marked(str(path.relative_to(ROOT))) for path in PAGES if examples_of(path).examples()]
)
def test_examples_of_the_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example in examples_of(ROOT / page).examples():
        example.evaluate()


@pytest.mark.demo
@pytest.mark.parametrize("name", [_marked(name) for name in tutorials.names()])
def test_the_tutorial_runs(name: str) -> None:
    text = (tutorials.FOLDER / name).read_text(encoding="utf-8")
    shown = tutorials.as_markdown(tutorials.execute(text))
    assert len(shown) > len(text)  # something was shown


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    shown = {line.removeprefix("::: ").strip() for line in text.splitlines() if line.startswith("::: ")}
    names = {f"{package.__name__}.{name}" for package in (headlab, headlab.testing) for name in package.__all__}
    errors = {f"headlab.{name}" for name in vars(headlab.base.errors)}  # shown as one module
    assert names - shown - errors == set()


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    quiet = {"HEADLAB_DOCS_EXECUTE": "0", "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    loaded = [p for p in pages if any(f'{kind}="http' in p.read_text("utf-8") for kind in ("src", 'stylesheet" href'))]
    assert loaded == []  # nothing comes from the network
