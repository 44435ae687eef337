"""The README's numbers are those of the committed results, and its files and commands exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", README, re.DOTALL)
    assert found is not None
    return found.group(1).strip()


def test_the_coverage_table_is_the_one_that_the_script_wrote() -> None:
    matrix = (ROOT / "results/coverage/matrix.md").read_text(encoding="utf-8").strip()
    assert block("coverage") == matrix.split("\n\n")[0]


def test_the_costs_of_looking_are_those_measured() -> None:
    table = pd.read_csv(ROOT / "results/bench_capture/bench_capture.csv")
    rows = [line for line in block("bench_capture").splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(table)
    for line, (_, row) in zip(rows, table.iterrows(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[:2] == [f"{row.tokens:,}", row.way]
        assert float(cells[2]) == row.times_sdpa and float(cells[3]) == row.peak_mb_above_sdpa


def test_the_costs_of_measuring_are_those_measured() -> None:
    table = pd.read_csv(ROOT / "results/bench_sweep/bench_sweep.csv")
    table = table[table["times_faster"].notna()]
    rows = [line for line in block("bench_sweep").splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(table)
    for line, (_, row) in zip(rows, table.iterrows(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0].startswith(f"{row.model}, {row.heads:.0f}") and cells[1] == row.way
        assert float(cells[2]) == row.times_faster and cells[4] in ("", f"{row['of_top_20']:.0f}")
    found = table.set_index(["model", "way"])["of_top_20"]
    assert (found["demo:minilm"].dropna() == 20).all() and found["demo:smollm2", "race"] == 20
    confirmed = table.set_index(["model", "way"])["confirmed_heads"]["demo:smollm2", "screen"]
    missed = {7: "seven"}[20 - int(found["demo:smollm2", "screen"])]
    _says(f"{missed} of the 20 are not among the {confirmed:.0f} heads that gradients put first")
    assert table["largest_gap"].max() < 1e-5


def test_the_costs_of_pruning_are_those_measured() -> None:
    table = pd.read_csv(ROOT / "results/prune_sst2/summary.csv")
    rows = [line for line in block("which-heads").splitlines() if line.startswith("|")][2:]
    assert len(rows) == len(table)
    for line, (_, row) in zip(rows, table.iterrows(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[0].split()[0] == row.strategy and float(cells[1].split()[0]) == round(row.mean_drop, 3)
        assert float(cells[2]) == round(row.drop_at_half, 3)


def _says(*phrases: str) -> None:
    text = " ".join(README.split())
    assert [phrase for phrase in phrases if phrase not in text] == []


def test_what_is_said_of_the_classifier_is_what_was_measured() -> None:
    folder = ROOT / "results/prune_sst2"
    sweep, tuned = pd.read_csv(folder / "sweep.csv"), pd.read_csv(folder / "tuned.csv")
    own = sweep[sweep["metric"] == "accuracy"]
    tenth = own[own["budget"] == "90%"].groupby("strategy")["drop"].agg(["min", "max"]).mul(100).round()
    few = own[(own["strategy"] == "hard_concrete") & (own["n_removed"] == 65)]["drop"].min()
    _says(
        f"it loses {tenth.loc['gradient_iterated', 'min']:.0f} points where the one-shot gradient loses "
        f"{tenth.loc['gradient', 'min']:.0f} and random orders {tenth.loc['random', 'min']:.0f} to "
        f"{tenth.loc['random', 'max']:.0f}",
        f"the best of three hard-concrete trainings loses {100 * few:.0f} points",
    )
    cut = tuned[(tuned["metric"] == "accuracy") & (tuned["budget"] == "90%")].set_index("strategy").round(2)
    before, after = cut["value_untuned"].map(lambda v: f"{v:.2f}"[1:]), cut["value"].map(lambda v: f"{v:.2f}"[1:])
    _says(
        f"from {before['gradient']} back to {after['gradient']}, a random one from {before['random']} to "
        f"{after['random']}"
    )


def test_what_is_said_of_smollm2_is_what_was_measured() -> None:
    tables = {name: pd.read_csv(ROOT / f"results/prune_smollm2/{name}/sweep.csv") for name in ("pairs", "wikitext")}
    pairs = tables["pairs"][tables["pairs"]["metric"] == "accuracy"]
    gradient = pairs[pairs["strategy"] == "gradient"].set_index("budget")
    half, fifth = gradient.loc["50%"], gradient.loc["20%"]
    drops = 100 * pairs[(pairs["strategy"] == "random") & (pairs["budget"] == "50%")]["drop"]
    ablation = 100 * pairs[(pairs["strategy"] == "ablation") & (pairs["budget"] == "10%")]["drop"].iloc[0]
    _says(
        f"(accuracy {half['value']:.3f} from {half['baseline']:.3f}; drop {half['drop']:.3f}, interval "
        f"{half['ci_low']:.3f} to {half['ci_high']:.3f})".replace("0.", "."),
        f"three random orders lose {drops.min():.0f} to {drops.max():.0f} points",
        f"rises by {-100 * fifth['drop']:.1f} points ({-100 * fifth['ci_high']:.1f} to {-100 * fifth['ci_low']:.1f})",
        f"One-shot ablation loses {ablation:.0f} points at the first 10 %",
    )
    text = tables["wikitext"][tables["wikitext"]["metric"] == "perplexity"]
    values = text.groupby(["strategy", "budget"])["value"].agg(["min", "max"]).round()
    at = {budget: values.loc[("random", budget)] for budget in ("20%", "30%", "50%")}
    _says(
        f"from {text['baseline'].iloc[0]:.1f} to {values.loc[('gradient', '20%'), 'min']:.0f} at 20 %",
        f"random orders ({at['20%']['min']:.0f} to {at['20%']['max']:.0f}) are better there up to 30 %",
        f"({values.loc[('gradient', '50%'), 'min']:.0f} against {at['50%']['min']:,.0f} to "
        f"{at['50%']['max']:,.0f} at half)",
    )
    assert at["30%"]["max"] < values.loc[("gradient", "30%"), "min"]


def test_what_is_said_of_translation_is_what_was_measured() -> None:
    meta = json.loads((ROOT / "results/train_marian/meta.json").read_text())["notes"]
    _says(f"in {meta['cpu_seconds']:.0f} CPU seconds to {meta['bleu']:.1f} BLEU")
    kinds = pd.read_csv(ROOT / "results/reproduce_michel_mt/kinds.csv")
    cut = kinds[(kinds["metric"] == "bleu") & (kinds["strategy"] == "gradient") & (kinds["budget"] == "80%")]
    cut = cut.set_index("kinds")
    encoder = cut.loc["encoder"]
    _says(
        f"({encoder['baseline']:.1f} BLEU on 500 lines, gradient order)",
        f"({encoder['drop']:.1f}, interval {encoder['ci_low']:.1f} to {encoder['ci_high']:.1f})",
        f"decoder heads cost {cut.loc['decoder', 'drop']:.1f} and cross-attention heads "
        f"{cut.loc['cross', 'drop']:.1f} BLEU",
    )
    students = pd.read_csv(ROOT / "results/check_student/check_student.csv")
    _says(
        *(f"in {students['identical'].iloc[0]} and {students['identical'].iloc[1]} of {students['sentences'].iloc[0]}",)
    )


def test_what_is_said_of_the_student_is_what_was_measured() -> None:
    speed = pd.read_csv(ROOT / "results/bench_translate/bench_translate.csv").set_index(["way", "batch_size"])
    folder = ROOT / "results/reproduce_voita"
    curve, single = pd.read_csv(folder / "curve.csv"), pd.read_csv(folder / "single.csv").set_index("name")
    bleu = curve[curve["metric"] == "bleu"]
    drop = bleu.groupby(["strategy", "n_removed"])["drop"].agg(["min", "max"])
    counts = pd.read_csv(folder / "affordable.csv").set_index(["strategy", "drop"]).loc["gradient"]
    one = counts.loc[1.0]
    few = bleu[(bleu["n_heads"] - bleu["n_removed"]).between(10, 11)].groupby("strategy")["drop"].agg(["min", "max"])
    _says(
        f"{speed.loc[('headlab', 32), 'sentences_per_second']:.0f} sentences a second at batch 32",
        f"({bleu['baseline'].iloc[0]:.1f} BLEU on 500 lines of NTREX; heads chosen on 256 other lines",
        f"{counts.loc[0.25, 'removed']} of 48 encoder heads go for a quarter of a BLEU point and {one['removed']} "
        f"for one point ({one['at_least']} to {one['at_most']} by the interval), where random orders lose "
        f"{drop.loc[('random', 8), 'min']:.1f} to {drop.loc[('random', 8), 'max']:.1f} with 8 gone",
        f"(X1H2: {-single.loc['X1H2', 'nll_drop']:.2f} nats better, {single.loc['X1H2', 'bleu_drop']:.1f} BLEU worse)",
        f"worse than random orders ({drop.loc[('ablation', 12), 'min']:.1f} BLEU with 12 heads gone)",
        f"mends that ({drop.loc[('ablation_own', 12), 'min']:.1f} BLEU)",
        f"(11 left: {few.loc['hard_concrete_own', 'max']:.1f} BLEU against {few.loc['hard_concrete', 'min']:.1f} to "
        f"{few.loc['hard_concrete', 'max']:.1f} on references)",
        f"costs {single.loc['X1H6', 'bleu_drop']:.1f} BLEU, third of 16; X0H5 alone costs "
        f"{single.loc['X0H5', 'bleu_drop']:.1f}.",
    )
    assert drop.loc[("ablation", 8), "min"] > drop.loc[("random", 8), "max"]
    cross = pd.read_csv(folder / "cross.csv").set_index("name")
    assert (
        cross["alignment_score"].idxmax() == "X1H6" and (cross["bleu_drop"] > cross.loc["X1H6", "bleu_drop"]).sum() == 2
    )
    stay = pd.read_csv(folder / "survival.csv").groupby("label")["effect"].median()
    assert stay["separator_score"] < 0.25 and stay["rare_token_score"] > 0.75
    marian = ROOT / "results/reproduce_michel_mt"
    best, alone = (pd.read_csv(marian / f"{name}.csv") for name in ("best", "single"))
    last = best[(best["name"] == "cross 2") & (best["metric"] == "bleu")]["drop"].item()
    _says(
        f"cross-attention layer costs {last:.1f} BLEU",
        f"{(alone['q'] < 0.05).sum()} of {len(alone)} heads matter alone",
    )


def test_what_is_said_of_labels_is_what_was_measured() -> None:
    folder = ROOT / "results/labels"
    heads = pd.read_csv(folder / "smollm2/heads.csv")
    _says(
        f"{heads['sink'].sum()} of SmolLM2's {len(heads)} heads are sinks and {heads['induction'].sum()} are induction"
    )
    syntax = pd.read_csv(folder / "syntax.csv")
    found = syntax[syntax["with_label"].astype(bool)].groupby("model")["relation"].agg(set)
    assert all(relations == {"det", "nsubj", "obj", "case", "aux"} for relations in found)


def test_the_cost_of_labels_is_the_one_measured() -> None:
    folder = ROOT / "results/bench_labels"
    cost = pd.read_csv(folder / "bench_labels.csv").set_index("part").loc["statistics and 15 labels"]
    memory = pd.read_csv(folder / "memory.csv").set_index("texts")["peak_mb"]
    _says(
        f"cost {cost['times_statistics']:.2f} times the plain statistics over {int(cost['texts'])} texts",
        f"{memory[10]:.0f} MB for 10 texts and {memory[100]:.0f} MB for 100",
    )


def test_pictures_and_files_named_in_the_readme_exist() -> None:
    named = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README) + re.findall(r"`((?:results|scripts)/[\w./-]+\.\w+)`", README)
    assert named and [path for path in named if not (ROOT / path).is_file()] == []


def test_python_names_used_in_the_readme_exist() -> None:
    import headlab

    used = set(re.findall(r"\bheadlab\.([a-z_A-Z]+)\b", README))
    packages = {path.name for path in (ROOT / "headlab").iterdir() if (path / "__init__.py").is_file()}
    assert {"Heads", "task", "sweep"} <= used
    assert sorted(used - packages - set(headlab.__all__)) == []
