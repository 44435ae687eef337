"""How many encoder heads of the Firefox student can go (after Voita et al. 2019): curves, gates, every head alone.

Without files of lines: NTREX in the folder HEADLAB_DATA, else the sentences of the package. The first lines judge, the
lines after them choose: by the loss on their references and, under names that end in _own, on the student's own
translations. It can be stopped at any time; masks that are done are not done again.

    python -m scripts.experiments.reproduce_voita.run [--limit 500] [--scores gradient,ablation] \\
        [--parts curve,gates,single,report]
"""

from __future__ import annotations

import pandas as pd

from headlab.base.masks import HeadId
from headlab.runs.tables import save_table
from scripts.experiments.shared import translation as shared

NTREX = ("ntrex/newstest2019.first1000.en", "ntrex/newstest2019.first1000.pt-BR")
COMMAND = "python -m scripts.experiments.reproduce_voita.run"


def main() -> None:
    """The parts asked for; what each found is kept in the run's folder."""
    parser = shared.arguments(__doc__ or "", "demo:firefox-en-pt", "results/reproduce_voita")
    parser.add_argument("--scores", default="gradient,ablation")
    parser.add_argument("--budgets", default="0,8,16,24,32,40", help="of the scores and of every random order")
    parser.add_argument("--more-budgets", default="4,12", help="of the scores and of one random order")
    parser.add_argument("--penalties", default="0.003,0.01,0.03,0.1", help="nats for an open gate")
    parser.add_argument("--steps", type=int, default=50, help="of training gates")
    parser.add_argument("--gate-seeds", type=int, default=3)
    parser.add_argument("--worst", type=int, default=8, help="encoder heads whose removal alone is judged by BLEU")
    parser.add_argument("--parts", default="curve,gates,single,report")
    given = parser.parse_args()
    parts = given.parts.split(",")
    bench = shared.open_bench(given, NTREX)
    folder = shared.kept(given.runs, "tables")
    own = shared.on_own_translations(bench, given)
    if "curve" in parts:
        scores = shared.scores_of(bench, given.scores.split(","), given.runs)
        scores = scores.join(shared.scores_of(own, given.scores.split(","), given.runs).add_suffix("_own"))
        save_table(scores, folder, "heads")
        wide, more = ([int(budget) for budget in text.split(",")] for text in (given.budgets, given.more_budgets))
        found = [shared.curve(bench, scores, wide, ["encoder"], given.seeds)]
        found[0].to_parquet(folder / "curve.parquet")
        found.append(shared.curve(bench, scores, more, ["encoder"], 1))
        everything = pd.concat(found).drop_duplicates(["strategy", "seed", "budget", "metric"])
        everything.to_parquet(folder / "curve.parquet")
    if "gates" in parts:
        penalties = [float(one) for one in given.penalties.split(",")]
        for name, chosen in (("hard_concrete", bench), ("hard_concrete_own", own)):
            curve, gates = shared.learned_gates(
                chosen, penalties, ["encoder"], given.steps, given.gate_seeds, given.runs, name
            )
            curve.to_parquet(folder / f"{name}-curve.parquet")
            gates.to_parquet(folder / f"{name}.parquet")
    if "single" in parts:
        cheap = shared.single_heads(bench, [HeadId(*head) for head in bench.heads.index], bench.cheap)
        cheap.to_parquet(folder / "single-nll.parquet")
        loss = cheap[(cheap["metric"] == "nll")].sort_values("drop", ascending=False)
        worst = pd.concat([loss[loss["kind"] == "cross"], loss[loss["kind"] == "encoder"].head(given.worst)])
        chosen = [HeadId(*place) for place in worst[["kind", "layer", "head"]].itertuples(index=False)]
        shared.single_heads(bench, chosen, bench.judge).to_parquet(folder / "single.parquet")
    if "report" in parts:
        from scripts.experiments.reproduce_voita.report import report  # draws, which the other parts need not wait for

        shared.write(given.out, report(bench, folder, given.out), bench, COMMAND)


if __name__ == "__main__":
    main()
