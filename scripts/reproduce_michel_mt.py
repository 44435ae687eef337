"""Encoder, decoder and cross-attention heads of a translation model (after Michel et al. 2019).

Every head alone; each layer left with its best head, chosen on one half and judged on the other; each kind of
attention pruned by itself and all together, by per cent of its heads. MODEL is what train_marian.py made. It can be
stopped at any time; masks that are done are not done again.

    python scripts/reproduce_michel_mt.py --model FOLDER --source test.en --reference test.de --lowercase
"""

from __future__ import annotations

import pandas as pd
import translation_experiments as shared

import headlab

MULTI30K = ("multi30k/test_2016_flickr.en.gz", "multi30k/test_2016_flickr.de.gz")
BUDGETS = ("0", "20%", "40%", "60%", "80%", "100%")


def main() -> None:
    """All tables of one model."""
    parser = shared.arguments(__doc__ or "", "runs/marian", "results/reproduce_michel_mt")
    parser.add_argument("--scores", default="gradient")
    parser.add_argument("--parts", default="kinds,best,single")
    given = parser.parse_args()
    parts = given.parts.split(",")
    task = shared.open_task(given, MULTI30K)
    heads = headlab.Heads(task.model)
    tables: dict[str, pd.DataFrame] = {}
    if "kinds" in parts:
        scores = shared.scores_of(heads, task, given.scores.split(","), given.runs)
        kinds = list(dict.fromkeys(kind for kind, _, _ in heads.index))
        curves = [
            shared.curve(heads, task, scores, BUDGETS, chosen, given.seeds, given.runs)
            for chosen in [*([kind] for kind in kinds), None]
        ]
        tables["kinds"] = pd.concat(curves)
        shown = tables["kinds"][tables["kinds"]["metric"] == "bleu"]
        print(shown.pivot_table(index=["strategy", "n_removed", "budget"], columns="kinds", values="drop").round(2))
    if "best" in parts:
        tables["best"] = shared.best_heads(heads, task, given.runs)
    if "single" in parts:
        tables["single"] = shared.single_heads(heads, task, given.runs)
    for name in ("best", "single"):
        if name in tables:
            bleu = tables[name][tables[name]["metric"] == "bleu"]
            print(bleu.nlargest(10, "drop")[["name", "drop", "ci_low", "ci_high"]].to_string(index=False))
    shared.write(given.out, tables, task, "python scripts/reproduce_michel_mt.py")


if __name__ == "__main__":
    main()
