"""How many encoder heads of the Firefox student can go (after Voita et al. 2019): curves, and every head alone.

Without files of lines: the first lines of NTREX in the folder HEADLAB_DATA, else the sentences of the package. It
can be stopped at any time; masks that are done are not done again.

    python scripts/reproduce_voita.py [--limit 500] [--scores gradient,ablation] [--budgets 0,4,8..] [--out FOLDER]
"""

from __future__ import annotations

import translation_experiments as shared

import headlab
from headlab.report.figures import pruning_curve
from headlab.tables import write_atomically

NTREX = ("ntrex/newstest2019.first1000.en", "ntrex/newstest2019.first1000.pt-BR")


def main() -> None:
    """Scores on one half, curves and single heads on the other."""
    parser = shared.arguments(__doc__ or "", "demo:firefox-en-pt", "results/reproduce_voita")
    parser.add_argument("--scores", default="gradient,ablation")
    parser.add_argument("--budgets", default="0,4,8,12,16,20,24,28,32,36,40")
    parser.add_argument("--parts", default="curve,single")
    given = parser.parse_args()
    task = shared.open_task(given, NTREX)
    heads = headlab.Heads(task.model)
    tables = {}
    if "curve" in given.parts.split(","):
        scores = shared.scores_of(heads, task, given.scores.split(","), given.runs)
        budgets = [int(budget) for budget in given.budgets.split(",")]
        tables["curve"] = shared.curve(heads, task, scores, budgets, ["encoder"], given.seeds, given.runs)
        tables["affordable"] = shared.affordable(tables["curve"])
        figure = pruning_curve(tables["curve"], metric="bleu")
        write_atomically(given.out / "curve-bleu.png", lambda path: figure.savefig(path, dpi=120))
        print(tables["affordable"].to_string(index=False))
    if "single" in given.parts.split(","):
        tables["single"] = shared.single_heads(heads, task, given.runs)
        bleu = tables["single"][tables["single"]["metric"] == "bleu"]
        print(bleu.nlargest(8, "drop")[["name", "drop", "ci_low", "ci_high"]].to_string(index=False))
    shared.write(given.out, tables, task, "python scripts/reproduce_voita.py")


if __name__ == "__main__":
    main()
