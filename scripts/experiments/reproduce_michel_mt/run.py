"""Encoder, decoder and cross-attention heads of a translation model (after Michel et al. 2019).

Every head alone; each layer left with its best head, chosen on other lines than those that judge; each kind of
attention pruned by itself and all together, by per cent of its heads. MODEL is what train_marian.py made. It can be
stopped at any time; masks that are done are not done again.

    python -m scripts.experiments.reproduce_michel_mt.run --lowercase [--model FOLDER] [--source FILE --reference FILE]
"""

from __future__ import annotations

import pandas as pd

from headlab.base.masks import HeadId
from headlab.runs.tables import save_table
from scripts.experiments.shared import translation as shared

MULTI30K = ("multi30k/test_2016_flickr.en.gz", "multi30k/test_2016_flickr.de.gz")
BUDGETS = ("0", "20%", "40%", "60%", "80%", "100%")
COMMAND = "python -m scripts.experiments.reproduce_michel_mt.run --lowercase"


def main() -> None:
    """The parts asked for; what each found is kept in the run's folder."""
    parser = shared.arguments(__doc__ or "", "runs/marian", "results/reproduce_michel_mt")
    parser.add_argument("--scores", default="gradient")
    parser.add_argument("--parts", default="kinds,best,single,report")
    parser.set_defaults(seeds=3, batch_size=128)
    given = parser.parse_args()
    parts = given.parts.split(",")
    bench = shared.open_bench(given, MULTI30K)
    folder = shared.kept(given.runs, "tables")
    if "kinds" in parts:
        scores = shared.scores_of(bench, given.scores.split(","), given.runs)
        save_table(scores, folder, "heads")
        kinds = list(dict.fromkeys(kind for kind, _, _ in bench.heads.index))
        curves = []
        for chosen in [*([kind] for kind in kinds), None]:
            curves.append(shared.curve(bench, scores, BUDGETS, chosen, given.seeds))
            pd.concat(curves).to_parquet(folder / "kinds.parquet")
    if "best" in parts:
        shared.best_heads(bench, given.runs).to_parquet(folder / "best.parquet")
    if "single" in parts:
        everything = [HeadId(*head) for head in bench.heads.index]
        shared.single_heads(bench, everything, bench.judge).to_parquet(folder / "single.parquet")
    if "report" in parts:
        from scripts.experiments.reproduce_michel_mt.report import (
            report,  # draws, which the other parts need not wait for
        )

        shared.write(given.out, report(bench, folder, given.out), bench, COMMAND)


if __name__ == "__main__":
    main()
