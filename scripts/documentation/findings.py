"""Writes docs/findings/ from the templates beside this file, with every number read from the tables in results/.

python -m scripts.documentation.findings

A sentence that compares (worse, best, none) is kept only while `hold` finds it in the tables.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
TEMPLATES = Path(__file__).parent / "findings"
PAGES = ROOT / "docs" / "findings"
RELATIONS = {"det", "nsubj", "obj", "case", "aux"}  # of these some head is a finder, of the others none
FEW = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


def read(path: str) -> pd.DataFrame:
    """A table of results/."""
    return pd.read_csv(RESULTS / path)


def notes(folder: str) -> dict[str, Any]:
    """The notes in the meta.json of a folder of results/."""
    return json.loads((RESULTS / folder / "meta.json").read_text(encoding="utf-8"))["notes"]


def hold(*claims: bool) -> None:
    """Raise ValueError where the tables no longer say what the words beside the numbers say."""
    if not all(claims):
        raise ValueError(f"Claim {list(claims).index(False) + 1} of this page is not what the tables say: rewrite it.")


def labels() -> dict[str, Any]:
    """What the heads of four real models do, beside the same models with random weights."""
    counts = read("labels/counts.csv").set_index(["model", "label"])
    smollm2 = read("labels/smollm2/heads.csv")
    syntax = read("labels/syntax.csv")
    finders = syntax[syntax["with_label"].astype(bool)].groupby("model")["relation"].agg(set)
    no_op = read("labels/no_op.csv")
    shares = no_op[no_op["carries_label"] & (no_op["model"] == "tagger") & (no_op["keys"] == "separator")]
    distances = read("labels/distances.csv").set_index(["model", "kind", "weights", "texts"])
    trained = distances.xs("trained", level="weights")
    flips = read("planted/flips.csv")
    random_weights = counts["random_weights_with_label"].drop("broad", level="label").dropna()
    hold(
        all(relations == RELATIONS for relations in finders),
        counts.loc[("minilm", "separator"), "with_label"] == 0,
        (trained["within"] < trained["between"]).all() and (trained["p"] < 0.01).all(),
        (random_weights == 0).all(),
        read("induction/summary.csv").set_index("model")["step_of_induction"].notna().to_dict()
        == {"1-layer": False, "2-layer": True},
    )
    planted = flips[flips["expected"]].groupby(["kind", "planted", "label"], as_index=False)["median"].max()
    return {
        "counts": counts,
        "sinks": int(smollm2["sink"].sum()),
        "induction": int(smollm2["induction"].sum()),
        "smollm2_heads": len(smollm2),
        "alignment": counts.loc[("firefox", "alignment")],
        "shares": shares[["weight_share", "norm_share", "gradient_share"]].mean(),
        "planted": planted[planted["planted"] == planted["label"].str.partition(":")[0]],
        "distances": trained.reset_index(),
        "relations": syntax,
    }


def classifier() -> dict[str, Any]:
    """Which heads of a sentiment classifier can go."""
    summary, sweep, tuned = (read(f"prune_sst2/{name}.csv") for name in ("summary", "sweep", "tuned"))
    own = sweep[sweep["metric"] == "accuracy"]
    tenth = own[own["budget"] == "90%"].groupby("strategy")["drop"].agg(["min", "max"]).mul(100)
    few = own[(own["strategy"] == "hard_concrete") & (own["n_removed"] == 65)]["drop"].min()
    cut = tuned[(tuned["metric"] == "accuracy") & (tuned["budget"] == "90%")].set_index("strategy")
    drops = summary.set_index("strategy")
    hold(
        summary["strategy"].iloc[0] == "gradient_iterated",
        (drops.loc[["gradient", "fisher", "lrp"], "ci_low_at_half"] < 0).all(),
        (drops.loc[["gradient", "fisher", "lrp"], "ci_high_at_half"] > 0).all(),
        (drops.loc[["magnitude", "confidence"], "mean_drop"] > drops.loc["random", "mean_drop_min"]).all(),
        drops.loc["ablation", "mean_drop"] > drops.loc["random", "mean_drop_max"],
        100 * few < tenth.loc["gradient_iterated", "min"],
    )
    return {"summary": summary, "tenth": tenth, "few": 100 * few, "tuned": cut}


def language_model() -> dict[str, Any]:
    """Which heads of SmolLM2 can go, by minimal pairs and by perplexity."""
    pairs, text = read("prune_smollm2/pairs/sweep.csv"), read("prune_smollm2/wikitext/sweep.csv")
    pairs, text = pairs[pairs["metric"] == "accuracy"], text[text["metric"] == "perplexity"]
    gradient = pairs[pairs["strategy"] == "gradient"].set_index("budget")
    values = text.groupby(["strategy", "budget"])["value"].agg(["min", "max"])
    induction = pairs[pairs["strategy"] == "label:induction"].set_index("budget")
    by_budget = pairs.groupby(["strategy", "budget"])["drop"].agg(["min", "max"]).mul(100)
    matched = by_budget.loc["matched:induction", "max"]
    hold(
        gradient.loc["50%", "ci_low"] < 0 < gradient.loc["50%", "ci_high"],
        gradient.loc["20%", "ci_high"] < 0,
        all(induction.loc[budget, "ci_low"] * 100 < matched.loc[budget] for budget in ("10%", "20%")),
        values.loc[("random", "20%"), "max"] < values.loc[("gradient", "20%"), "min"],
        values.loc[("random", "30%"), "max"] < values.loc[("gradient", "30%"), "min"],
        values.loc[("random", "50%"), "min"] > values.loc[("gradient", "50%"), "min"],
    )
    return {"gradient": gradient, "drops": by_budget, "perplexity": values, "whole": text["baseline"].iloc[0]}


def translation() -> dict[str, Any]:
    """Which heads of two translation models can go."""
    students = read("check_student/check_student.csv").set_index("direction")
    speed = read("bench_translate/bench_translate.csv").set_index(["way", "batch_size"])["sentences_per_second"]
    curve, single = read("reproduce_voita/curve.csv"), read("reproduce_voita/single.csv").set_index("name")
    bleu = curve[curve["metric"] == "bleu"]
    drop = bleu.groupby(["strategy", "n_removed"])["drop"].agg(["min", "max"])
    affordable = read("reproduce_voita/affordable.csv").set_index(["strategy", "drop"]).loc["gradient"]
    few = bleu[(bleu["n_heads"] - bleu["n_removed"]).between(10, 11)].groupby("strategy")["drop"].agg(["min", "max"])
    cross = read("reproduce_voita/cross.csv").set_index("name")
    survival = read("reproduce_voita/survival.csv").groupby("label")["effect"].median()
    kinds, best, alone = (read(f"reproduce_michel_mt/{name}.csv") for name in ("kinds", "best", "single"))
    kinds = kinds[kinds["metric"] == "bleu"]
    gradient = kinds[(kinds["strategy"] == "gradient") & (kinds["budget"] == "80%")].set_index("kinds")
    random = kinds[kinds["strategy"] == "random"].groupby(["budget", "kinds"])["drop"].mean()
    hold(
        drop.loc[("ablation", 8), "min"] > drop.loc[("random", 8), "max"],
        cross["alignment_score"].idxmax() == "X1H6",
        (cross["bleu_drop"] > cross.loc["X1H6", "bleu_drop"]).sum() == 2,
        survival["separator_score"] < 0.25 and survival["rare_token_score"] > 0.75,
        few.loc["hard_concrete_own", "max"] < few.loc["hard_concrete", "min"],
        gradient.loc["encoder", "ci_low"] < 0 < gradient.loc["encoder", "ci_high"],
        all(
            random[budget, "cross"] > max(random[budget, "encoder"], random[budget, "decoder"])
            for budget in ("40%", "60%", "80%", "100%")
        ),
    )
    return {
        "students": students,
        "speed": speed["headlab", 32],
        "whole": bleu["baseline"].iloc[0],
        "drop": drop,
        "affordable": affordable,
        "few": few,
        "single": single,
        "cross": cross,
        "training": notes("train_marian"),
        "kinds": gradient,
        "last": best[(best["name"] == "cross 2") & (best["metric"] == "bleu")]["drop"].item(),
        "alone": int((alone["q"] < 0.05).sum()),
        "heads": len(alone),
    }


def costs() -> dict[str, Any]:
    """What looking and measuring cost."""
    sweep = read("bench_sweep/bench_sweep.csv")
    sweep = sweep[sweep["times_faster"].notna()]
    by_way = sweep.set_index(["model", "way"])
    missed = 20 - int(by_way.loc[("demo:smollm2", "screen"), "of_top_20"])
    hold(
        (by_way.loc["demo:minilm", "of_top_20"].dropna() == 20).all(),
        by_way.loc[("demo:smollm2", "race"), "of_top_20"] == 20,
        sweep["largest_gap"].max() < 1e-5,
    )
    return {
        "capture": read("bench_capture/bench_capture.csv"),
        "sweep": sweep,
        "missed": missed,
        "confirmed": by_way.loc[("demo:smollm2", "screen"), "confirmed_heads"],
        "labels": read("bench_labels/bench_labels.csv").set_index("part").loc["statistics and 15 labels"],
        "memory": read("bench_labels/memory.csv").set_index("texts")["peak_mb"],
    }


def coverage() -> dict[str, Any]:
    """Which model types of transformers are seen."""
    matrix = (RESULTS / "coverage/matrix.md").read_text(encoding="utf-8").strip().split("\n\n")[0]
    table = read("coverage/coverage.csv")
    language = table[table["group"] == "language"]
    hold((table["wrong"].isna() | (table["wrong"] == "")).all())
    return {"matrix": matrix, "outcomes": language["outcome"].value_counts(), "types": len(language)}


PAGES_OF: dict[str, Callable[[], dict[str, Any]]] = {
    "labels": labels,
    "classifier": classifier,
    "language-model": language_model,
    "translation": translation,
    "costs": costs,
    "coverage": coverage,
}


def pages() -> dict[str, str]:
    """File name -> text of every page of findings. Raises ValueError where a page says what its tables do not."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["n"] = lambda value, digits=0: "" if pd.isna(value) else f"{value:,.{digits}f}"
    environment.filters["short"] = lambda value, digits=3: f"{value:.{digits}f}".replace("0.", ".", 1)
    environment.filters["word"] = lambda value: FEW[int(value)]
    tables = {"index": dict, **PAGES_OF}
    return {
        f"{name}.md": wrapped(environment.get_template(f"{name}.md").render(**read_tables()))
        for name, read_tables in tables.items()
    }


def wrapped(text: str) -> str:
    """The Markdown with its paragraphs filled to 120 columns; tables, lists and pictures as they are."""
    blocks = text.strip().split("\n\n")
    filled = [
        block
        if block.lstrip().startswith(("#", "|", "!", "- ", "```"))
        else textwrap.fill(block, 120, break_long_words=False, break_on_hyphens=False)
        for block in blocks
    ]
    return "\n\n".join(filled) + "\n"


def main() -> None:
    """Write every page."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
