"""Writes docs/definitions/ from what the plugins carry about themselves and from the definitions of columns.

python -m scripts.documentation.definitions
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headlab.labels import LABELS
from headlab.metrics import METRICS
from headlab.runs import columns as known
from headlab.scores import SCORES
from headlab.tasks import TASKS

PAGES = Path(__file__).parents[2] / "docs" / "definitions"

INDEX = """# Definitions

Written by `python -m scripts.documentation.definitions` from what the plugins carry about themselves: the same words
stand in `headlab list`, in tables and on pages of the report.

- [Labels](labels.md): what a head does.
- [Scores](scores.md): what a head is worth; higher is more important.
- [Tasks and metrics](tasks-and-metrics.md): what it is worth for.
- [Columns](columns.md): statistics, evidence, sweeps.
- [What the numbers mean](../what-the-numbers-mean.md): how they fit together.
"""

ABOUT_LABELS = """# Labels

A head carries a label where the score is above the threshold; chance, intervals and adjusted p stand beside it. A label
that the texts cannot decide is missing, not false."""
ABOUT_SCORES = """# Scores

Higher means more important; a sweep removes the smallest first. A variant is named after a colon:
`gradient:per-token`."""
ABOUT_TASKS = """# Tasks and metrics

A task opens data and says what a model is worth; a metric is computed from sums over examples, so that a bootstrap
needs no model."""


def plugins_of(registry: Any) -> list[Any]:
    """The built-in plugins of one kind."""
    return [registry.load(name) for name in registry.built_in()]


def line(value: Any) -> str:
    """Text that stands in one cell of a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table of Markdown."""
    header = list(header)
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(line(cell) for cell in row) + " |" for row in rows)])


def entry(plugin: Any, facts: Mapping[str, Any]) -> str:
    """A plugin with its facts, those that are empty left out."""
    lines = [f"## {plugin.name}", line(plugin.text)]
    listed = {"Definition": plugin.definition, "Source": plugin.source} | dict(facts)
    lines.append(
        "\n".join(f"- **{name}**: {line(fact)}" for name, fact in listed.items() if fact not in (None, "", ()))
    )
    return "\n\n".join(lines)


def reads(label: Any) -> str:
    """Which texts a label is judged on."""
    if getattr(label, "needs", ""):
        return f"the file of `--{label.needs}`"
    return "texts of its own, so that it has to be named" if label.input is not None else "the given texts"


def labels() -> str:
    """Every label."""
    parts = [ABOUT_LABELS]
    for label in plugins_of(LABELS):
        parts.append(
            entry(
                label,
                {
                    "Null": label.null,
                    "Reads": reads(label),
                    "In figures": f"`{label.letter}`, {label.colour}",
                },
            )
        )
    return "\n\n".join(parts) + "\n"


def scores() -> str:
    """Every score."""
    parts = [ABOUT_SCORES]
    for score in plugins_of(SCORES):
        variants = ", ".join(f"`{score.name}:{variant}`" for variant in score.variants)
        parts.append(entry(score, {"Unit": score.unit, "Variants": variants}))
    return "\n\n".join(parts) + "\n"


def tasks_and_metrics() -> str:
    """Every task and every metric."""
    parts = [ABOUT_TASKS]
    for task in plugins_of(TASKS):
        parts.append(
            entry(
                task,
                {
                    "Loss": task.loss,
                    "Metrics": ", ".join(f"`{name}`" for name in task.metrics),
                    "Demo models": ", ".join(f"`{name}`" for name in task.demo_models),
                },
            )
        )
    rows = (
        (
            f"`{m.name}`",
            m.title,
            m.unit,
            "" if m.bounds is None else f"{m.bounds[0]:g} to {m.bounds[1]:g}",
            "higher" if m.higher_is_better else "lower",
            f"{m.text} {m.definition}; {m.source}",
        )
        for m in plugins_of(METRICS)
    )
    parts += ["## Metrics", table(("metric", "title", "unit", "bounds", "better", "definition and source"), rows)]
    return "\n\n".join(parts) + "\n"


def columns() -> str:
    """Every column of the tables that is not a plugin's."""
    parts = ["# Columns", "Tables are tidy: one row a head (`heads`), one row per cut and metric (`sweep`)."]
    groups = {"Identity": known.IDENTITY, "Statistics": known.STATISTICS, "Sweep": known.SWEEP}
    for title, group in groups.items():
        rows = ((f"`{name}`", found.title, found.unit, found.text) for name, found in group.items())
        parts += [f"## {title}", table(("column", "title", "unit", "what it is"), rows)]
    parts += ["The statistics ending in `_words` leave out queries at tokens that the tokenizer added.", "## Evidence"]
    rows = ((f"`<label>_{suffix}`", each.title, each.unit, each.text) for suffix, each in known.EVIDENCE.items())
    parts.append(table(("column", "title", "unit", "what it is"), rows))
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """File name -> text of every page of definitions."""
    return {
        "index.md": INDEX,
        "labels.md": labels(),
        "scores.md": scores(),
        "tasks-and-metrics.md": tasks_and_metrics(),
        "columns.md": columns(),
    }


def main() -> None:
    """Write every page."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
