"""The README is short, its numbers are those of the committed results, and its files and names exist."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pandas as pd
import yaml

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _says(*phrases: str) -> None:
    text = " ".join(README.split())
    assert [phrase for phrase in phrases if phrase not in text] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_what_is_said_of_labels_is_what_was_measured() -> None:
    heads = pd.read_csv(ROOT / "results/labels/smollm2/heads.csv")
    _says(
        f"{heads['sink'].sum()} of SmolLM2's {len(heads)} heads are sinks and {heads['induction'].sum()} are induction"
    )


def test_what_is_said_of_the_classifier_is_what_was_measured() -> None:
    sweep = pd.read_csv(ROOT / "results/prune_sst2/sweep.csv")
    own = sweep[sweep["metric"] == "accuracy"]
    tenth = own[own["budget"] == "90%"].groupby("strategy")["drop"].agg(["min", "max"]).mul(100).round()
    _says(
        f"half of the {own['n_heads'].max()} heads go at no measurable loss by gradient",
        f"loses {tenth.loc['gradient_iterated', 'min']:.0f} points of accuracy where random orders lose "
        f"{tenth.loc['random', 'min']:.0f} to {tenth.loc['random', 'max']:.0f}",
    )
    half = own[(own["budget"] == "50%") & (own["strategy"] == "gradient")].iloc[0]
    assert half["ci_low"] < 0 < half["ci_high"]
    summary = pd.read_csv(ROOT / "results/prune_sst2/summary.csv").set_index("strategy")
    assert summary.loc["ablation", "mean_drop"] > summary.loc["random", "mean_drop_max"]


def test_what_is_said_of_smollm2_is_what_was_measured() -> None:
    pairs = pd.read_csv(ROOT / "results/prune_smollm2/pairs/sweep.csv")
    half = pairs[(pairs["metric"] == "accuracy") & (pairs["strategy"] == "gradient") & (pairs["budget"] == "50%")]
    assert half["ci_low"].item() < 0 < half["ci_high"].item()
    text = pd.read_csv(ROOT / "results/prune_smollm2/wikitext/sweep.csv")
    text = text[(text["metric"] == "perplexity") & (text["strategy"] == "gradient")].set_index("budget")
    _says(f"perplexity goes from {text['baseline'].iloc[0]:.1f} to {text.loc['20%', 'value']:.0f} at 20 %")


def test_what_is_said_of_models_and_costs_is_what_was_measured() -> None:
    language = json.loads((ROOT / "results/coverage/summary.json").read_text())["language"]
    _says(f"Of {language['types']} model types", f"proven, in {language['outcomes']['proven']}.")
    capture = pd.read_csv(ROOT / "results/bench_capture/bench_capture.csv")
    times = capture[capture["way"] == "headlab statistics"]["times_sdpa"]
    _says(f"cost {times.min():.2f} to {times.max():.2f} times a plain forward pass")


def test_links_of_all_pages_lead_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in SOURCES
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_python_names_used_in_the_pages_exist() -> None:
    import headlab

    packages = {path.stem for path in (ROOT / "headlab").iterdir() if path.suffix in ("", ".py")}
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        if path.name != "CHANGELOG.md"
        for name in re.findall(r"\bheadlab\.([A-Za-z_]+)\b", path.read_text(encoding="utf-8"))
        if name not in packages and name not in headlab.__all__ and name not in ("displays", "exe")
    }
    assert unknown == set()


def test_the_citation_names_this_version() -> None:
    import headlab

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == headlab.__version__
    assert f"## [{headlab.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_files_named_in_the_pages_exist() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {named}"
        for path in SOURCES
        if path.name != "CHANGELOG.md"
        for named in re.findall(
            r"`((?:headlab|scripts|results|tests|docs)/[\w./-]+)`", path.read_text(encoding="utf-8")
        )
        if "NAME" not in named and not (ROOT / named).exists()
    }
    assert missing == set()


def test_modules_that_moved_are_where_the_changelog_says() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    homes = {home.removesuffix(".*") for home in re.findall(r"\| `(headlab\.[\w.*]+)` \|$", text, re.MULTILINE)}
    missing = [home for home in homes if importlib.util.find_spec(home) is None]
    assert homes and missing == []
